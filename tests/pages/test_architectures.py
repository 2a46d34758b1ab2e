"""The pages of architectures, their family tree, the gallery and the matrix, as they are built."""

import re
import sys
from html import unescape
from html.parser import HTMLParser
from importlib import import_module

import pytest
from building import architecture_sections, architecture_words, architectures, family
from building import family_tree as tree
from building import feature_matrix as matrix

from tests.helpers.site_of_docs import SITE, Page
from zoo.describe import base_of, describe
from zoo.describe.differences import differences
from zoo.describe.language import in_language
from zoo.host.registry import default_registry, isolated

REGISTRY = default_registry()
NAMES = [name for name, one in REGISTRY.architectures.items() if any(p.config for p in one.presets)]

PLUGIN = '''
from zoo.architecture import Architecture, Preset, hookimpl
from zoo_llama import TINY, WEIGHTS, llama
from zoo_narrow.window import WINDOW


def narrow(config):
    """LLaMA that sees three tokens."""
    return llama(config).change_layers(mixer=dict(window=WINDOW))


@hookimpl
def zoo_architectures():
    yield Architecture(
        name="narrow", base="llama", summary="a narrow <LLaMA>", recipe=narrow, weights=WEIGHTS,
        presets=(Preset("small", config=TINY),), references=("Somebody, 2030, arXiv:3001.00001",),
    )
'''


@pytest.fixture
def third_party(tmp_path, monkeypatch):
    """A registry with a plugin whose files are none of this repository."""
    folder = tmp_path / "zoo_narrow"
    folder.mkdir()
    (folder / "__init__.py").write_text(PLUGIN)
    (folder / "window.py").write_text("WINDOW = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield isolated(import_module("zoo_narrow"))
    for name in ("zoo_narrow", "zoo_narrow.window"):
        sys.modules.pop(name, None)


def text_of(html):
    """What a reader sees of some HTML, quotation marks as they are typed."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).replace("’", "'").split())


def cell(html, label):
    """The first cell of the row that a label names."""
    found = re.search(rf'<tr><th scope="row">{re.escape(label)}</th><td>(.*?)</td>', html)
    return text_of(found[1])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_page_has_the_facts_differences_and_sources_of_its_architecture(name, language):
    html = (SITE / ("zh" if language == "zh" else "") / f"architectures/{name}.html").read_text("utf-8")
    found = describe(name, REGISTRY)
    context = min(4096, found.recipe.context or 4096)
    sheet = found.sheet(REGISTRY, context)
    for fact in (sheet["parameters.total"], sheet.get("cache.context")):
        if fact is not None and not fact.detail:
            assert cell(html, in_language(fact.label, language)) == fact.text
    assert all(
        number in html
        for text in found.architecture.references
        for number in re.findall(r"\d{4}\.\d{5}", text)
    )
    seen = text_of(html)
    if base := base_of(found, REGISTRY):
        for sentence in differences(base[1], found.recipe, sizes=False):
            assert in_language(sentence, language).strip(".。") in seen
        assert f"{base[0]}.html" in Page.of(SITE / "architectures" / f"{name}.html").links


@pytest.mark.parametrize("name", NAMES)
def test_the_boxes_of_a_diagram_lead_to_their_code(name):
    html = (SITE / "architectures" / f"{name}.html").read_text("utf-8")
    picture = html[html.index('<svg class="zoo-diagram"') :]
    picture = picture[: picture.index("</svg>")]
    boxes = re.findall(r'(<a href="\.\./code/[^"]*">)?<g class="block (\w+)', picture)
    assert all(link for link, role in boxes if role not in ("input", "output", "memory"))


def test_a_third_partys_architecture_has_a_page_with_its_own_files(third_party):
    text = architectures.page(family.members(third_party)["narrow"], third_party, "en")
    assert "Attention sees a window of 3 tokens." in text
    assert "def narrow(config):" in text
    assert "A narrow \\<LLaMA\\>." in text  # no HTML
    assert "<summary><code>zoo_narrow/window.py</code></summary>" in text
    assert "WINDOW = 3" in text
    assert "[arXiv:3001.00001](https://arxiv.org/abs/3001.00001)" in text
    assert "../compare/index.html#narrow:small,llama:8b" in text


@pytest.mark.nightly  # it writes the page of every architecture
def test_pages_of_architectures_that_are_gone_are_removed(third_party, tmp_path):
    write = architectures.write_pages
    (tmp_path / "index.md").write_text("# Index\n")
    (tmp_path / "gone.md").write_text("# Gone\n")
    write(tmp_path, third_party, "en")
    assert {path.stem for path in tmp_path.glob("*.md")} == {
        "index",
        *family.members(third_party),
    }


class Boxes(HTMLParser):
    """The name in each box of the tree, and that in the box around it."""

    def __init__(self, text):
        super().__init__()
        self.around, self.found, self.begun = [], {}, False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        if tag == "li":
            self.begun = True
        elif tag == "a" and self.begun:
            name = dict(attributes)["href"].removesuffix(".html")
            assert name not in self.found
            self.found[name] = self.around[-1] if self.around else ""
            self.around.append(name)
            self.begun = False

    def handle_endtag(self, tag):
        if tag == "li":
            self.around.pop()


def test_the_tree_has_each_architecture_once_within_the_box_of_its_base():
    among = family.members()
    text = "".join(tree.box(one, among, "en", "") for one in family.roots(among))
    assert Boxes(text).found == {name: one.base if one.base in among else "" for name, one in among.items()}
    assert re.search(r">gpt2</a> <small>Feb 2019 · variants: 4<", text)


def test_a_variant_that_the_zoo_made_says_so():
    among = family.members()
    for language, words in (("en", "the zoo's own"), ("zh", "zoo 自己的")):
        said = {name: words in tree.box(one, {}, language, "") for name, one in among.items()}
        assert [name for name, own in said.items() if own] == ["prefix-lm", "gpt2-postln"]


@pytest.mark.parametrize(
    ("sentence", "rest"),
    [
        ("A (b) instead of c (d (e) f)", "A instead of c"),
        ("甲（乙（丙））取代丁", "甲取代丁"),
        ("nothing aside", "nothing aside"),
    ],
)
def test_a_box_leaves_out_what_a_sentence_says_in_brackets(sentence, rest):
    assert tree.without_asides(sentence) == rest


def test_members_and_their_variants_are_in_the_order_of_publication():
    among = family.members()
    assert list(among) == sorted(among, key=lambda name: among[name].published)
    months = [among[name].published for name in ("transformer", "gpt", "gpt2", "llama")]
    assert months == sorted(months)
    periods = family.by_period(among.values())
    assert [one for some in periods.values() for one in some] == list(among.values())
    assert all(len(some) >= family.FEW for some in list(periods.values())[:-1])
    for period, some in periods.items():
        first, _, last = period.partition("–")
        assert all(first <= one.published[:4] <= (last or first) for one in some)


def test_a_month_is_written_out_in_both_languages():
    month = architecture_words.month
    assert month("2017-06", "en") == "June 2017" and month("2017-06", "en", short=True) == "Jun 2017"
    assert month("2023-12", "zh") == month("2023-12", "zh", short=True) == "2023 年 12 月"


SMALLEST = """() => Math.min(...[...document.querySelectorAll(".zoo-gallery svg text")]
    .filter(text => text.checkVisibility())
    .map(text => parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a))"""


@pytest.mark.parametrize(
    ("place", "width"),
    [("gallery.html", 1440), ("gallery.html", 390), ("zh/gallery.html", 390)],
)
def test_text_in_the_pictures_is_12_pixels_or_more(visit, place, width):
    page = visit(SITE / place, width=width)
    assert page.evaluate(SMALLEST) >= 11.99


@pytest.mark.parametrize("width", [390, 1280])
def test_the_name_of_a_family_stays_in_sight_while_its_variants_pass(visit, width):
    page = visit(SITE / "families.html", width=width)
    names = page.locator(".zoo-tree a").all_text_contents()
    assert sorted(names) == sorted(NAMES) and names.index("gpt") < names.index("gpt2")
    page.locator(".zoo-tree a", has_text=re.compile("^qwen3$")).first.evaluate(
        "one => one.scrollIntoView({ behavior: 'instant' })"
    )
    head = page.locator(".zoo-tree > li > p", has_text=re.compile("^llama "))
    assert 0 <= head.evaluate("one => one.getBoundingClientRect().top") < 60
    assert page.evaluate("document.documentElement.scrollHeight") < 6000


@pytest.mark.parametrize(("width", "hinted"), [(390, True), (2400, False)])
def test_a_table_that_scrolls_says_so(visit, width, hinted):
    page = visit(SITE / "matrix.html", width=width)
    assert page.locator(".zoo-hint").is_visible() == hinted


def test_the_matrix_says_what_a_recipe_has():
    found = {name: matrix.features(one, "en") for name, one in family.members().items()}
    assert found["gpt-oss"]["experts"].text == "4 of 32"
    assert found["deepseek-v3"]["experts"].text == "8 of 256, shared one"
    assert found["gpt-oss"]["positions"].text == "rotary / YaRN scaling"
    assert found["t5"]["causality"].text == "all tokens / earlier tokens"
    assert found["mamba"]["cache"].text == "a state of constant size"
    assert found["bert"]["cache"].text == "none"
    assert "mxfp4" in found["llama"]["formats"].text
    assert found["llama"]["formats"] != found["lstm"]["formats"]  # whose width of 1,500 no group divides


def test_the_matrix_is_sorted_by_the_column_that_is_pressed(visit):
    page = visit(SITE / "matrix.html")
    names = "rows => rows.map(row => row.querySelector('th').textContent)"
    head = page.locator(".zoo-matrix thead button", has_text="Parameters")
    head.click()
    expected = sorted(
        NAMES, key=lambda name: describe(name, REGISTRY).sheet(REGISTRY).value("parameters.total")
    )
    first = page.eval_on_selector_all(".zoo-matrix tbody tr", names)
    assert first[0] == expected[0] and first[-1] == expected[-1]
    head.press("Enter")
    assert page.eval_on_selector_all(".zoo-matrix tbody tr", names)[0] == expected[-1]
    assert page.locator(".zoo-matrix th[aria-sort=descending]").inner_text().startswith("Parameters")


@pytest.mark.parametrize("place", ["matrix.html", "gallery.html", "zh/gallery.html"])
def test_a_task_is_chosen_without_a_script(browser, place):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((SITE / place).as_uri())
    page.locator("input[id$=-translate]").check()
    shown = page.locator(".zoo-filtered [data-task]:visible").count()
    assert shown == sum(REGISTRY.architecture(name).task == "translate" for name in NAMES)
    context.close()


def shown_columns(page):
    """The heads of the columns that are shown, the architectures' left out."""
    return [head for head in page.locator(".zoo-matrix thead th:visible").all_inner_texts()][1:]


@pytest.mark.parametrize("folder", ["", "zh/"])
def test_the_matrix_shows_eight_columns_at_the_width_of_the_page(visit, folder):
    page = visit(SITE / folder / "matrix.html", width=1440)
    assert len(shown_columns(page)) == 8
    frame = page.locator(".zoo-matrix")
    assert frame.evaluate("box => box.scrollWidth <= box.clientWidth && box.clientWidth > 950")
    assert page.locator(".zoo-matrix tbody tr:visible").count() == len(NAMES)


def test_columns_are_chosen_by_the_keyboard_and_kept_in_the_address(visit):
    page = visit(SITE / "matrix.html", width=1440)
    before = shown_columns(page)
    page.locator(".zoo-columns summary").focus()
    page.keyboard.press("Enter")
    page.locator(".zoo-columns input[name=base]").focus()
    page.keyboard.press("Space")
    assert len(shown_columns(page)) == 9 and "Variant of" in shown_columns(page)
    assert (
        page.locator(".zoo-columns summary").inner_text()
        == f"Columns: 9 of {page.locator('.zoo-columns input').count()}"
    )
    assert ",base," in page.evaluate("location.hash")
    page.reload()
    assert len(shown_columns(page)) == 9
    page.locator(".zoo-columns summary").click()
    page.locator(".zoo-columns button").press("Enter")
    assert shown_columns(page) == before and page.evaluate("location.hash") == ""


def test_an_address_names_the_columns(visit):
    page = visit(SITE / "matrix.html")
    page.goto(f"{(SITE / 'matrix.html').as_uri()}#columns=task,no-such-column,gguf-short")
    page.wait_for_function("document.querySelectorAll('.zoo-columns input:checked').length === 2")
    assert shown_columns(page) == ["Task", "GGUF"]


def test_without_a_script_the_matrix_has_all_columns(browser):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((SITE / "matrix.html").as_uri())
    assert len(shown_columns(page)) == page.locator(".zoo-columns input").count()
    assert page.locator(".zoo-columns").is_hidden()
    assert page.locator(".zoo-matrix").evaluate("box => box.scrollWidth > box.clientWidth")
    context.close()


def test_the_first_column_and_the_heads_of_the_matrix_stay_in_sight(visit):
    page = visit(SITE / "matrix.html", width=390, height=700)
    box = page.locator(".zoo-matrix")
    box.evaluate("box => { box.scrollLeft = 900; box.scrollTop = 300 }")
    frame = box.bounding_box()
    name = page.locator(".zoo-matrix tbody tr:last-child th").bounding_box()
    head = page.locator(".zoo-matrix thead th:visible").nth(3).bounding_box()
    assert abs(name["x"] - frame["x"]) < 3
    assert abs(head["y"] - frame["y"]) < 3


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("zh/matrix.html", ".zoo-matrix tbody th"),
        ("zh/architectures/nemotron-h.html", ".zoo-sheet th"),
        ("zh/lab/positions.html", "table.docutils td:first-child"),
    ],
)
def test_short_words_in_a_first_column_stay_on_one_line_on_a_phone(name, cells, visit):
    page = visit(SITE / name, width=390)
    lines = page.locator(cells).evaluate_all(
        """cells => cells.filter(cell => cell.innerText.length <= 5 && cell.innerText.trim()).map(cell => {
            const range = document.createRange(), rows = new Set();
            for (const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT); texts.nextNode(); ) {
                range.selectNodeContents(texts.currentNode);
                for (const one of range.getClientRects()) rows.add(Math.round(one.bottom)); }
            return [cell.innerText, rows.size] })"""
    )
    assert lines and all(count == 1 for _, count in lines), lines


def test_a_page_compares_with_the_base_and_a_few_relatives_of_its_time():
    among = family.members()
    text = architecture_sections.comparisons(among["granite"], default_registry(), "en")
    names = re.findall(r"#[\w:.-]+,[\w:.-]+\">([\w.-]+)<", text)
    assert names[0] == "llama" and len(names) == architecture_sections.COMPARED
    assert all(abs(int(among[name].published[:4]) - 2024) <= 1 for name in names)
    assert f'#{among["granite"].origin}">with another<' in text
