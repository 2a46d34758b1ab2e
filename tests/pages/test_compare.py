"""The page that compares models, in a browser: settings change its values, boxes mark their facts."""

import json
import subprocess
import sys

import pytest

from zoo.facts import describe
from zoo.host.registry import default_registry
from zoo.insight.diagram import diagram_of, marked, to_svg

NAMES = ("gemma2", "mixtral", "deepseek-v3")
PAIRS = [("gpt2", "gpt2-postln"), ("transformer", "t5"), ("bert", "llama"), ("llama", "mamba")]

# What a box holds must lie in it, as the browser's own fonts have it: texts in boxes and cells, notes in the picture.
MEASURE = """() => {
  const out = [];
  const room = (a, b, what) => {
    if (a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 || a.bottom > b.bottom + 1) out.push(what);
  };
  for (const svg of document.querySelectorAll("svg.zoo-diagram")) {
    const whole = svg.getBoundingClientRect();
    for (const text of svg.querySelectorAll("text")) room(text.getBoundingClientRect(), whole, text.textContent);
    for (const block of svg.querySelectorAll(".block")) {
      const box = block.querySelector(":scope > .box");
      if (!box) continue;
      const edges = box.getBoundingClientRect();
      for (const title of block.querySelectorAll(":scope > .title"))
        room(title.getBoundingClientRect(), edges, title.textContent);
      for (const cell of block.querySelectorAll(".cell")) {
        const shape = cell.querySelector("rect, circle").getBoundingClientRect();
        room(shape, edges, cell.textContent);
        if (cell.querySelector("rect"))
          room(cell.querySelector("text").getBoundingClientRect(), shape, cell.textContent);
      }
    }
    const notes = [...svg.querySelectorAll("text")].map((text) => [text, text.getBoundingClientRect()]);
    notes.forEach(([a, x], i) => notes.slice(i + 1).forEach(([b, y]) => {
      if (x.left < y.right - 1 && y.left < x.right - 1 && x.top < y.bottom - 3 && y.top < x.bottom - 3)
        out.push(`${a.textContent} over ${b.textContent}`);
    }));
  }
  return out;
}"""


def zoo(*arguments):
    command = [sys.executable, "-m", "zoo", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("pages") / "page.html"
    zoo("compare", *NAMES, "--html", str(path))
    return path


def texts(page, fact):
    return page.locator(f'main tr[data-fact="{fact}"] td').all_text_contents()


def expected(name, *arguments):
    """What the command says of a fact, with its settings."""
    record = json.loads(zoo("compare", *NAMES, "--json", *arguments))
    sheets = [sheet["facts"].get(name) for sheet in record["sheets"]]
    return [None if fact is None else fact["value"] for fact in sheets]


def number(text):
    """The number of a text such as "5.23 GB"."""
    value, _, unit = text.removesuffix("B").rstrip().partition(" ")
    return float(value) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[unit]


def test_settings_change_what_the_command_would_say(visit, path):
    page = visit(path)
    for tokens, format in (("100000", "4"), ("1", "mxfp4"), ("4097", "8"), ("8192", "float32")):
        page.fill("#context", tokens)
        page.select_option("#quantize", format)
        for fact in ("cache.context", "weights.chosen", "flops.decode"):
            told = expected(fact, "--context", tokens, "--quantize", format)
            shown = [number(text) for text in texts(page, fact)]
            assert shown == pytest.approx(told, rel=6e-3), (fact, tokens, format)
        label = page.locator('main tr[data-fact="cache.context"] .label').text_content()
        assert label == f"cache at {int(tokens):,} tokens"


def test_the_slider_moves_by_the_keyboard(visit, path):
    page = visit(path)
    before = texts(page, "cache.context")
    page.focus("#slider")
    page.keyboard.press("ArrowRight")
    assert page.input_value("#context") == "8192"
    assert texts(page, "cache.context") != before
    told = expected("cache.context", "--context", "8192")
    assert [number(text) for text in texts(page, "cache.context")] == pytest.approx(told, rel=6e-3)


def test_a_context_that_cannot_be_is_refused(visit, path):
    page = visit(path)
    before = texts(page, "cache.context")
    page.fill("#context", "0")
    assert "1 or more" in page.text_content("#status")
    assert texts(page, "cache.context") == before


def test_the_cache_can_be_quantized(visit, path):
    page = visit(path)
    full = [number(text) for text in texts(page, "cache.context")]
    page.select_option("#policy", "8-bit")
    half = [number(text) for text in texts(page, "cache.context")]
    assert half == pytest.approx([value * 1.0625 / 2 for value in full], rel=1e-2)


def test_a_box_marks_its_facts(visit, path):
    page = visit(path)
    page.locator('.block[data-role="attention"]').first.focus()
    marked = page.locator("main tr.about").evaluate_all("rows => rows.map(row => row.dataset.key)")
    assert "heads" in marked and "vocabulary" not in marked
    assert page.locator("#peek").is_visible()
    page.locator("#theme").focus()
    assert page.locator("main tr.about").count() == 0 and page.locator("#peek").is_hidden()


def test_light_and_dark(visit, path):
    page = visit(path, scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    picture = "getComputedStyle(document.querySelector('.ground')).fill"
    assert page.evaluate(ground) == page.evaluate(picture) == "rgb(20, 23, 29)"
    page.click("#theme")
    assert page.evaluate(ground) == page.evaluate(picture) == "rgb(255, 255, 255)"
    assert page.locator("#theme").text_content() == "Dark"


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("names", [*PAIRS, NAMES], ids=" ".join)
def test_pages_fit_the_window(visit, tmp_path, names, width):
    path = tmp_path / "page.html"
    zoo("compare", *names, "--html", str(path))
    page = visit(path, width=width)
    assert page.locator("svg.zoo-diagram").count() == len(names)
    for details in page.locator("details").all():
        details.locator("summary").click()


def test_diagrams_have_room_in_a_browser(visit, tmp_path):
    registry = default_registry()
    path = tmp_path / "page.html"

    def drawn(names):
        found = [describe(name, registry) for name in names]
        return marked([diagram_of(one.recipe, one.origin, registry) for one in found])

    groups = [*([name] for name in registry.architectures), *PAIRS, NAMES]
    for names in groups:
        path.write_text(
            "<!doctype html><meta charset=utf-8><link rel=icon href='data:,'><body style='margin:0'>"
            + to_svg(drawn(names)),
            encoding="utf-8",
        )
        page = visit(path, width=3200)
        assert page.evaluate(MEASURE) == [], names
