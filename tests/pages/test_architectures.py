"""The pages of architectures, their family tree, the gallery and the matrix, as they are built."""

import re
import sys
from html import unescape
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest

from tests.helpers.site_of_docs import SITE, links_of
from zoo.describe import base_of, describe
from zoo.describe.differences import differences
from zoo.describe.language import in_language
from zoo.host.registry import default_registry, isolated

DOCS = Path(__file__).parents[2] / "docs"
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


@pytest.fixture(scope="module")
def building():
    """The parts of `docs/building` by name, as the build imports them."""
    sys.path.insert(0, str(DOCS))
    yield lambda name: import_module(f"building.{name}")
    sys.path.remove(str(DOCS))


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
        assert f"{base[0]}.html" in links_of(SITE / "architectures" / f"{name}.html").found


@pytest.mark.parametrize("name", NAMES)
def test_the_boxes_of_a_diagram_lead_to_their_code(name):
    html = (SITE / "architectures" / f"{name}.html").read_text("utf-8")
    picture = html[html.index('<svg xmlns="http://www.w3.org/2000/svg" class="zoo-diagram"') :]
    picture = picture[: picture.index("</svg>")]
    boxes = re.findall(r'(<a href="\.\./code/[^"]*">)?<g class="block (\w+)', picture)
    assert all(link for link, role in boxes if role not in ("input", "output", "memory"))


def test_a_third_partys_architecture_has_a_page_with_its_own_files(building, third_party):
    architectures, family = building("architectures"), building("family")
    text = architectures.page(family.members(third_party)["narrow"], third_party, "en")
    assert "Attention sees a window of 3 tokens." in text
    assert "def narrow(config):" in text
    assert "A narrow \\<LLaMA\\>." in text  # no HTML
    assert "<summary><code>zoo_narrow/window.py</code></summary>" in text
    assert "WINDOW = 3" in text
    assert "[arXiv:3001.00001](https://arxiv.org/abs/3001.00001)" in text
    assert "../compare/index.html#narrow:small,llama:8b" in text


def test_pages_of_architectures_that_are_gone_are_removed(building, third_party, tmp_path):
    write = building("architectures").write_pages
    (tmp_path / "index.md").write_text("# Index\n")
    (tmp_path / "gone.md").write_text("# Gone\n")
    write(tmp_path, third_party, "en")
    assert {path.stem for path in tmp_path.glob("*.md")} == {
        "index",
        *building("family").members(third_party),
    }


def test_the_tree_has_each_architecture_once_and_an_edge_for_each_variant(building):
    family, tree = building("family"), building("family_tree")
    among = family.members()
    drawn = tree.drawn(among, "en", "architectures/")
    assert sorted(re.findall(r'href="architectures/([^"]*)\.html"', drawn)) == sorted(NAMES)
    assert drawn.count("<path d=") == sum(one.base in among for one in among.values())


@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_two_boxes_of_the_tree_overlap(building, language):
    family, tree = building("family"), building("family_tree")
    among = family.members()
    boxes = [
        box for root in family.roots(among) for box in tree.placed(root, among, 0.0, language, root.task)
    ]
    for root in family.roots(among):
        boxes = sorted(
            tree.placed(root, among, 0.0, language, root.task), key=lambda box: (box.x, box.middle)
        )
        for above, below in pairwise(boxes):
            if above.x == below.x:
                assert above.middle + above.height / 2 < below.middle - below.height / 2
        assert min(box.middle - box.height / 2 for box in boxes) >= 0


@pytest.mark.parametrize(
    ("sentence", "rest"),
    [
        ("A (b) instead of c (d (e) f)", "A instead of c"),
        ("甲（乙（丙））取代丁", "甲取代丁"),
        ("nothing aside", "nothing aside"),
    ],
)
def test_a_box_leaves_out_what_a_sentence_says_in_brackets(building, sentence, rest):
    assert building("family_tree").without_asides(sentence) == rest


def test_the_matrix_says_what_a_recipe_has(building):
    family, matrix = building("family"), building("feature_matrix")
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


def test_the_first_column_and_the_heads_of_the_matrix_stay_in_sight(visit):
    page = visit(SITE / "matrix.html", width=390, height=700)
    box = page.locator(".zoo-matrix")
    box.evaluate("box => { box.scrollLeft = 900; box.scrollTop = 300 }")
    frame = box.bounding_box()
    name = page.locator(".zoo-matrix tbody tr:last-child th").bounding_box()
    head = page.locator(".zoo-matrix thead th").nth(3).bounding_box()
    assert abs(name["x"] - frame["x"]) < 3
    assert abs(head["y"] - frame["y"]) < 3
