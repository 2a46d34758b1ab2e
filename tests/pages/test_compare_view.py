"""The switches of a comparison, the marks of sizes, and the swipe in a narrow window."""

import json
import re

import pytest

from tests.pages.test_compare import MEASURE
from zoo.describe import describe
from zoo.describe.differences import differences, is_of_sizes
from zoo.host.registry import default_registry

NAMES = ("gpt2", "llama", "mistral")
FIRST, STRUCTURE = "input[name=first]", "input[name=structure]"
DIGITS = re.compile(r"(?<![-\w])\d")


@pytest.fixture
def path(page_of):
    return page_of(NAMES)


def shown(page):
    """The facts that the table shows, by name, with the texts of the models."""
    rows = page.locator(".facts tbody tr:visible").evaluate_all(
        "rows => rows.map(row => [row.dataset.fact, [...row.querySelectorAll('td')].map(cell => cell.textContent)])"
    )
    return dict(rows)


def marked(page, model, kind="differs"):
    """What is marked in the diagram of a model."""
    figure = page.locator(".pictures figure").nth(model)
    return figure.locator(
        f".picture :is(.note, .stack, .label).{kind}, .{kind} > .box > .title, .{kind} > .count"
    ).all_text_contents()


def press(page, switch):
    page.locator(switch).focus()
    page.keyboard.press("Space")


def test_only_rows_that_differ_from_the_first_are_shown(visit, path):
    page = visit(path)
    before = shown(page)
    press(page, FIRST)
    after = shown(page)
    assert after == {name: texts for name, texts in before.items() if len(set(texts)) > 1}
    assert len(after) < len(before)
    for row in page.locator(".facts tbody tr.differs:not(.size):visible").all():
        cells = row.locator("td")
        texts, marks = cells.all_text_contents(), cells.evaluate_all("all => all.map(one => one.className)")
        assert [mark == "differs" for mark in marks] == [text != texts[0] for text in texts]
    press(page, FIRST)
    assert shown(page) == before


def test_diagrams_are_marked_against_the_first_model(visit, path):
    page = visit(path)
    both = marked(page, 1)
    press(page, FIRST)
    # In the first model, what another has not in any form is marked.
    assert set(marked(page, 0)) == {"≠ 1,024 positions", "≠ biases: all", "≠ biases"}
    assert "≠ Final RMSNorm" in marked(page, 1) and "≠ Final RMSNorm" in marked(page, 2)
    assert set(marked(page, 1)) <= set(both)
    # A box that is marked as a whole has faint notes.
    assert "≠ 8 key/value heads" in marked(page, 1, "size")


def test_structure_hides_sizes_in_diagrams_facts_and_words(visit, path):
    page = visit(path)
    before = shown(page)
    assert {"width", "vocabulary", "parameters.total", "licence"} <= set(before)
    press(page, STRUCTURE)
    after = shown(page)
    assert not {"width", "vocabulary", "context", "layers", "parameters.total", "licence"} & set(after)
    assert after["feedforward"] == before["feedforward"] and after["window"] == ["–", "–", "yes"]
    assert not any(DIGITS.search(text) for texts in after.values() for text in texts)
    notes = page.locator(".picture span").all_text_contents()
    assert not any(DIGITS.search(text) for text in notes)
    assert "≠ window n" in notes and "n ×" in notes and "Vocabulary n" not in notes
    words = page.locator("section.words li").all_text_contents()
    gpt2, *others = (describe(name, default_registry()).recipe for name in NAMES)
    assert words == [text for other in others for text in differences(gpt2, other) if not is_of_sizes(text)]
    assert page.locator("section.words").text_content().count("Vocabulary of") == 0
    press(page, STRUCTURE)
    assert shown(page) == before


def test_both_switches_leave_what_is_built_differently_from_the_first(visit, page_of):
    page = visit(page_of(("llama", "mixtral")))
    for switch in (FIRST, STRUCTURE):
        press(page, switch)
    assert {"feedforward", "experts", "experts_used"} <= set(shown(page))
    assert not {"norm", "mixer", "heads", "context"} & set(shown(page))
    assert marked(page, 1)[0] == "≠ Mixture of experts" and "≠ LLaMA-3 scaling ×n" in marked(page, 0)
    assert page.locator(".words li").all_text_contents() == [
        "Rotary base 1,000,000 without scaling instead of 500,000 with LLaMA-3 scaling ×8.",
        "Each layer's feed-forward is replaced by 8 experts, of which a token uses 2 (12.7 of 46.7 billion parameters are "
        "used for a token).",
    ]
    page.locator(".recipes summary").click()
    changed = page.locator(".recipes pre :is(.added, .removed)").all_text_contents()
    assert any("moe" in line for line in changed) and not any("vocab" in line for line in changed)


def test_where_nothing_differs_the_page_says_so(visit, page_of):
    page = visit(page_of(("gpt2", "gpt2:pocket")))
    for switch in (FIRST, STRUCTURE):
        press(page, switch)
    assert shown(page) == {}
    assert page.locator(".facts").get_by_text("Nothing differs.").is_visible()


def test_a_size_is_marked_faintly(visit, path):
    page = visit(path)
    colour = "one => getComputedStyle(one).color"
    accent = page.locator('.facts tr[data-fact="norm"] td').nth(1).evaluate(colour)
    assert page.locator('.facts tr[data-fact="width"] td').nth(1).evaluate(colour) != accent
    assert page.locator('.facts tr[data-fact="width"] .mark').text_content() == "≠"
    faint, strong = (
        marked(page, 1, "size"),
        page.locator(".pictures figure").nth(1).locator(".norm.differs:not(.size)"),
    )
    assert "≠ width 4,096" in faint and "≠ 32 ×" in faint and strong.count() == 3
    note = page.locator(".picture .note.size").first.evaluate(colour)
    assert note != page.locator(".picture .norm.differs .title").first.evaluate(colour)


def test_settings_still_change_the_rows_that_are_shown(visit, page_of):
    page = visit(page_of(("llama", "mamba")))
    press(page, FIRST)
    page.fill("input.context", "8192")
    sheets = [
        describe(name, default_registry()).sheet(default_registry(), 8192) for name in ("llama", "mamba")
    ]
    assert shown(page)["flops.decode"] == [sheet["flops.decode"].text for sheet in sheets]
    assert (
        page.locator('.facts tr[data-fact="cache.context"] .label').text_content() == "cache at 8,192 tokens"
    )
    press(page, STRUCTURE)
    assert shown(page)["heads"] == ["yes", "–"] and "flops.decode" not in shown(page)


def test_one_model_has_the_switch_of_structure_alone(visit, page_of):
    page = visit(page_of(("gemma2",)))
    assert page.locator(FIRST).count() == 0
    press(page, STRUCTURE)
    texts = page.locator(".picture span").all_text_contents()
    assert "Final RMSNorm (1 + w)" in texts and not any(re.search(r"\d{2}", text) for text in texts)


@pytest.mark.parametrize("names", [("llama", "mixtral"), ("transformer", "llama"), NAMES], ids=" ".join)
def test_a_narrow_window_shows_one_model_and_swipes_to_the_next(visit, page_of, names):
    page = visit(page_of(names), width=390, reduced_motion="reduce")
    frame = page.locator(".pictures.swipe")
    assert page.evaluate(MEASURE) == []
    left = "frame => frame.scrollLeft"
    buttons = page.locator(".steps button")
    assert buttons.all_text_contents() == [describe(name, default_registry()).origin for name in names]
    for index in (1, 0, len(names) - 1):
        buttons.nth(index).focus()
        page.keyboard.press("Enter")
        page.wait_for_function(
            f"document.querySelectorAll('.steps button')[{index}].getAttribute('aria-pressed') === 'true'"
        )
        box, window = page.locator(".pictures figure").nth(index).bounding_box(), frame.bounding_box()
        assert box["x"] >= window["x"] - 2 and box["x"] < window["x"] + window["width"] / 2
    # The arrow keys move it too.
    frame.focus()
    before = frame.evaluate(left)
    page.keyboard.press("ArrowLeft")
    page.wait_for_function(f"document.querySelector('.pictures').scrollLeft < {before}")


def test_the_same_block_stands_at_the_same_height_in_a_narrow_window(visit, page_of):
    page = visit(page_of(("transformer", "llama")), width=390)
    tops = page.evaluate(
        "() => [...document.querySelectorAll('.pictures figure')].map(figure => Object.fromEntries([...figure"
        ".querySelectorAll('.block[data-key]')].map(one => [one.dataset.role, one.getBoundingClientRect().bottom])))"
    )
    assert abs(tops[0]["output"] - tops[1]["output"]) < 1 and abs(tops[0]["input"] - tops[1]["input"]) < 1


def test_the_facts_keep_their_first_column_and_follow_the_swipe(visit, path):
    page = visit(path, width=390, reduced_motion="reduce")
    table, head = page.locator(".facts .scroll"), page.locator(".facts tbody tr:visible th").first
    before = head.bounding_box()["x"]
    page.locator(".steps button").nth(2).click()
    page.wait_for_function("document.querySelector('.facts .scroll').scrollLeft > 20")
    assert abs(head.bounding_box()["x"] - before) < 2
    edge = table.bounding_box()
    last = page.locator(".facts thead th").nth(2).bounding_box()
    assert last["x"] >= edge["x"] and last["x"] + last["width"] <= edge["x"] + edge["width"] + 2


def test_a_wide_window_has_no_swipe(visit, path):
    page = visit(path)
    assert page.locator(".steps").is_hidden() and page.locator(".pictures.swipe").count() == 0
    page.set_viewport_size({"width": 390, "height": 800})
    page.wait_for_selector(".pictures.swipe")
    assert page.locator(".steps").is_visible()
    page.set_viewport_size({"width": 1280, "height": 800})
    page.wait_for_selector(".pictures:not(.swipe)")


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("RoPE base 500,000", "RoPE base n"),
        ("LLaMA-3 scaling ×8", "LLaMA-3 scaling ×n"),
        ("RMSNorm (1 + w)", "RMSNorm (1 + w)"),
        ("32 个头，窗口 4,096", "n 个头，窗口 n"),
        ("mxfp4, 4.25 bits.", "mxfp4, n bits."),
    ],
)
def test_numbers_that_stand_alone_are_sizes(visit, path, text, plain):
    assert visit(path).evaluate("text => zooCompare.unnumbered(text)", text) == plain


def test_a_card_says_which_sentences_are_of_sizes(path):
    text = path.read_text(encoding="utf-8")
    cards = [json.loads(one) for one in re.findall(r"zooCompare\.card\((\{.*\})\);", text)]
    for card in cards:
        assert 0 < len(card["sizes"]) < len(card["sentences"])
        for index, sentence in enumerate(card["sentences"]):
            assert (index in card["sizes"]) == is_of_sizes(sentence)
