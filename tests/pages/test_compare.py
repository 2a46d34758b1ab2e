"""The comparison in a browser: it says what the command says, marks what Python marks, and opens code."""

import pytest

from tests.helpers.architectures import each_architecture
from tests.helpers.invoked import invoke
from zoo.describe import compare, describe
from zoo.describe.diagram import diagram_of, marked, to_svg
from zoo.describe.diagram.arrange import align, elements
from zoo.describe.pages.model_card import LEFT_OUT
from zoo.host.registry import default_registry

NAMES = ("gemma2", "mixtral", "deepseek-v3")
PAIRS = [("gpt2", "gpt2-postln"), ("transformer", "t5"), ("bert", "llama"), ("llama", "mamba")]
SETS = [*PAIRS, NAMES, ("deepseek-v3", "gemma2", "transformer", "mamba"), ("llama", "llama:pocket")]

# What a box holds must lie in it, as the browser's own fonts have it: texts in boxes and cells, notes in the picture. The
# picture is SVG, or one of the page's own.
MEASURE = """() => {
  const out = [];
  const room = (a, b, what) => {
    if (a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 || a.bottom > b.bottom + 1) out.push(what);
  };
  for (const picture of document.querySelectorAll("svg.zoo-diagram, .picture")) {
    const whole = picture.getBoundingClientRect();
    const texts = [...picture.querySelectorAll("text, span:not(.empty)")].map((text) => [text, text.getBoundingClientRect()]);
    for (const [text, place] of texts) room(place, whole, text.textContent);
    for (const block of picture.querySelectorAll(".block")) {
      const box = block.querySelector(":scope > .box");
      if (!box) continue;
      const edges = box.getBoundingClientRect();
      for (const text of box.querySelectorAll(".title, .cell")) room(text.getBoundingClientRect(), edges, text.textContent);
      for (const title of block.querySelectorAll(":scope > .title"))
        room(title.getBoundingClientRect(), edges, title.textContent);
      for (const cell of block.querySelectorAll(":scope > .cell")) {
        const shape = cell.querySelector("rect, circle").getBoundingClientRect();
        room(shape, edges, cell.textContent);
        if (cell.querySelector("rect"))
          room(cell.querySelector("text").getBoundingClientRect(), shape, cell.textContent);
      }
    }
    texts.forEach(([a, x], i) => texts.slice(i + 1).forEach(([b, y]) => {
      if (x.left < y.right - 1 && y.left < x.right - 1 && x.top < y.bottom - 3 && y.top < x.bottom - 3)
        out.push(`${a.textContent} over ${b.textContent}`);
    }));
  }
  return out;
}"""


def zoo(folder, *arguments):
    """What a command of the zoo prints."""
    done = invoke(folder, arguments, environment={"COLUMNS": "240"})
    assert done.returncode == 0, done.stderr
    return done.stdout


def described(names):
    registry = default_registry()
    return [describe(name, registry) for name in names]


@pytest.fixture
def path(page_of):
    return page_of(NAMES)


def texts(page, fact):
    return page.locator(f'.facts tr[data-fact="{fact}"] td').all_text_contents()


def expected(name, tokens, format):
    """What a sheet says of a fact, with its settings."""
    registry = default_registry()
    sheets = [one.sheet(registry, int(tokens), format) for one in described(NAMES)]
    return [fact.text if (fact := sheet.get(name)) else "–" for sheet in sheets]


def test_settings_change_what_the_command_would_say(visit, path):
    page = visit(path)
    for tokens, format in (("100000", "4"), ("1", "mxfp4"), ("4097", "8"), ("8192", "float32")):
        page.fill("input.context", tokens)
        page.select_option("select.weights", format)
        for fact in ("cache.context", "weights.chosen", "flops.decode"):
            assert texts(page, fact) == expected(fact, tokens, format), (fact, tokens, format)
        label = page.locator('.facts tr[data-fact="cache.context"] .label').text_content()
        assert label == f"cache at {int(tokens):,} tokens"


def test_the_slider_says_what_the_command_prints(visit, path, tmp_path):
    page = visit(path)
    page.focus("input.slider")
    page.keyboard.press("ArrowRight")
    assert page.input_value("input.context") == "8192"
    printed = zoo(tmp_path, "compare", *NAMES, "--context", "8192")
    row = next(line for line in printed.splitlines() if "cache at 8,192 tokens" in line)
    assert row.split("tokens")[1].split() == " ".join(texts(page, "cache.context")).split()


def test_a_context_that_cannot_be_is_refused(visit, path):
    page = visit(path)
    before = texts(page, "cache.context")
    page.fill("input.context", "0")
    assert "1 or more" in page.text_content("[role=status]")
    assert texts(page, "cache.context") == before


def test_the_cache_can_be_quantized(visit, path):
    from zoo.describe.facts.fact import text_of
    from zoo.describe.facts.memory import cache_bytes, cache_sizes

    page = visit(path)
    page.select_option("select.cache", "8-bit")
    told = [text_of(cache_bytes(cache_sizes(one.recipe), 4096, "8-bit"), "bytes") for one in described(NAMES)]
    assert texts(page, "cache.context") == told


@pytest.mark.parametrize("names", SETS, ids=" ".join)
def test_rows_stand_as_the_command_has_them(visit, page_of, names):
    page = visit(page_of(names))
    found = described(names)
    ours = page.evaluate(
        """names => zooCompare.rows(names.map(name => zooCompare.cards[name].facts))
            .map(row => [row.name, row.label, row.texts, row.differs, row.detail])""",
        [one.origin for one in found],
    )
    rows = compare([one.sheet(default_registry()) for one in found])
    told = [row for row in rows if not row.name.startswith(LEFT_OUT)]
    # Labels that name a context are those of one of the sheets, which are made for different ones.
    plain = [(row.name, row.label, list(row.texts), row.differs, row.detail) for row in told]
    assert [tuple(row) for row in ours] == plain


def flat(stack):
    """What is marked in a stack, in the order of its items."""
    yield stack.title, stack.differs
    for item in (stack.start, *stack.items, stack.end):
        yield from flat_item(item)


def flat_item(item):
    if hasattr(item, "role"):
        notes = [note.differs for note in item.notes]
        yield item.title, item.differs, notes, sorted(c.title for row in item.rows for c in row if c.differs)
        return
    yield type(item).__name__.lower(), item.differs
    for part in item.items:
        yield from flat_item(part)


FLAT = """names => {
  const item = one => {
    if (one.kind !== "box") return [[one.kind, Boolean(one.differs)], ...one.items.flatMap(item)];
    const notes = (one.notes || []).map((_, n) => Boolean(one.differingNotes && one.differingNotes[n]));
    const cells = (one.rows || []).flat().filter((_, n) => one.differingCells && one.differingCells[n]);
    return [[one.title, Boolean(one.differs), notes, cells.sort()]];
  };
  return zooCompare.marked(names.map(name => zooCompare.cards[name].stacks)).map(stacks => stacks.map(stack =>
    [[stack.title, Boolean(stack.differs)], ...[stack.start, ...stack.items, stack.end].flatMap(item)]));
}"""


@pytest.mark.parametrize("names", SETS, ids=" ".join)
def test_marks_are_those_of_the_command(visit, page_of, names):
    page = visit(page_of(names))
    found = described(names)
    diagrams = [diagram_of(one.recipe, one.origin, default_registry()) for one in found]
    told = [[list(map(list, flat(stack))) for stack in one.stacks] for one in marked(diagrams)]
    assert page.evaluate(FLAT, [one.origin for one in found]) == told


@pytest.mark.parametrize("names", SETS, ids=" ".join)
def test_what_has_one_role_stands_in_one_line(visit, page_of, names):
    page = visit(page_of(names))
    found = described(names)
    diagrams = [diagram_of(one.recipe, one.origin, default_registry()) for one in found]
    each = dict.fromkeys(("fork", "sum", "open", "close"), 1)
    columns = [elements(stack, each, lambda box: 1) for one in diagrams for stack in one.stacks]
    rows = align(columns, 0)
    ours = page.evaluate(
        """names => {
            const columns = names.flatMap(name => zooCompare.cards[name].stacks).map(zooCompare.elements);
            const rows = zooCompare.align(columns);
            return [rows, columns.map(column => column.map(one => [one.key, one.y]))];
        }""",
        [one.origin for one in found],
    )
    assert ours == [rows, [[[one.key, one.y] for one in column] for column in columns]]


def test_a_box_marks_its_facts(visit, path):
    page = visit(path)
    page.locator('.block[data-role="attention"]').first.focus()
    marked = page.locator(".facts tr.is-about").evaluate_all("rows => rows.map(row => row.dataset.key)")
    assert "heads" in marked and "vocabulary" not in marked
    assert page.locator(".peek").is_visible()
    page.locator("#theme").focus()
    assert page.locator(".facts tr.is-about").count() == 0 and page.locator(".peek").is_hidden()


def test_a_box_opens_the_code_behind_it(visit, path):
    page = visit(path)
    page.locator('.block[data-block="mixer/latent-attention"]').first.focus()
    page.keyboard.press("Enter")
    dialog = page.locator("dialog")
    assert dialog.is_visible()
    assert "plugins/zoo_deepseek/block.py:" in dialog.locator(".place").first.text_content()
    assert "class LatentAttention" in dialog.locator("pre").first.text_content()
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    page.locator('.block[data-block="feedforward/moe"]').first.click()
    assert "class MoE" in dialog.locator("pre").first.text_content()
    dialog.locator(".close").click()
    assert not dialog.is_visible()


def test_the_code_of_a_variant_is_its_own_lines(visit, page_of):
    page = visit(page_of(("llama", "mistral")))
    own = page.locator(".code .own").filter(has_text="Only mistral:7b")
    assert own.locator("summary code").all_text_contents() == ["mistral", "sliding_window"]
    assert (
        "change_layers(mixer=dict(window=sliding_window(config)))" in own.locator("pre").first.text_content()
    )


def test_the_recipes_lines_that_differ(visit, page_of):
    page = visit(page_of(("llama", "mistral")))
    page.locator(".recipes summary").click()
    lines = [" ".join(text.split()) for text in page.locator(".recipes pre span").all_text_contents()]
    assert '- "vocab": 128256,' in lines and '+ "vocab": 32000,' in lines
    assert '+ "window": 4096,' in lines and '- "window": null,' in lines


def test_light_and_dark(visit, path):
    page = visit(path, scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    box = "getComputedStyle(document.querySelector('.block.embedding')).backgroundColor"
    assert page.evaluate(ground) == "rgb(20, 23, 29)"
    dark = page.evaluate(box)
    page.click("#theme")
    assert page.evaluate(ground) == "rgb(255, 255, 255)" and page.evaluate(box) != dark
    assert page.locator("#theme").text_content() == "Dark"


@pytest.mark.parametrize("width", [390, pytest.param(1280, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("names", [*PAIRS, NAMES, ("bert",)], ids=" ".join)
def test_pages_fit_the_window(visit, page_of, names, width):
    page = visit(page_of(names), width=width)
    assert page.locator(".picture").count() == len(names)
    assert page.evaluate(MEASURE) == []
    for details in page.locator("details").all():
        details.evaluate("one => { one.open = true; }")


@pytest.mark.parametrize(
    "names", [*(pytest.param([one.values[0]], marks=one.marks) for one in each_architecture()), *PAIRS, NAMES]
)
def test_diagrams_have_room_in_a_browser(names, visit, tmp_path):
    path = tmp_path / "page.html"
    found = [describe(name, default_registry()) for name in names]
    drawn = marked([diagram_of(one.recipe, one.origin, default_registry()) for one in found])
    path.write_text(
        "<!doctype html><meta charset=utf-8><link rel=icon href='data:,'><body style='margin:0'>"
        + to_svg(drawn),
        encoding="utf-8",
    )
    assert visit(path, width=3200).evaluate(MEASURE) == []
