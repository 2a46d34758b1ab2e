"""The page that compares models, without a browser: what it holds, and that it needs nothing else."""

import json
import re
from html.parser import HTMLParser

import pytest

from zoo.facts import compare, describe
from zoo.facts.flops import decode_flops, prefill_flops
from zoo.host.registry import default_registry
from zoo.insight.diagram import diagram_of, marked
from zoo.insight.pages import compare_page
from zoo.insight.pages.compare import flops_points, recipe_lines


def made(*names, **settings):
    registry = default_registry()
    found = [describe(name, registry) for name in names]
    sheets = [one.sheet(registry, **settings) for one in found]
    diagrams = marked([diagram_of(one.recipe, one.origin, registry) for one in found])
    return compare_page(found, sheets, diagrams), sheets


@pytest.fixture(scope="module")
def page():
    return made("llama", "mixtral", context=2000, quantize="4")


class Cells(HTMLParser):
    """The rows of the table, and every attribute that names a file or an address."""

    def __init__(self):
        super().__init__()
        self.rows, self.addresses, self.open = {}, [], None

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.addresses += [value for name, value in attributes.items() if name in ("src", "href", "action")]
        if tag == "tr":
            self.row = self.rows.setdefault(attributes.get("data-fact"), [])
        self.open = tag

    def handle_endtag(self, tag):
        self.open = None

    def handle_data(self, data):
        if self.open == "td":
            self.row.append(data)


def parsed(text):
    cells = Cells()
    cells.feed(text)
    return cells


def test_its_rows_are_those_of_the_command(page):
    text, sheets = page
    rows = parsed(text).rows
    shown = [row for row in compare(sheets) if not (row.detail or row.empty or row.name == "fits")]
    assert {row.name: list(row.texts) for row in shown} == {name: row for name, row in rows.items() if name}
    assert "cache at 2,000 tokens" in text and "weights, 4 bits" in text


def test_it_needs_nothing_from_outside(page):
    text, _ = page
    assert parsed(text).addresses == ["data:,"]
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@import|url\(", text)
    assert text.count("<svg ") == 2 and "{{" not in text


def test_it_tells_the_differences_in_words_and_lines(page):
    text, _ = page
    assert "Vocabulary of 32,000 instead of 128,256." in text
    recipes = [describe(name, default_registry()).recipe for name in ("llama", "mixtral")]
    lines = recipe_lines(*recipes, "a", "b")
    assert ("-", '-  "vocab": 128256,') in lines and ("+", '+  "vocab": 32000,') in lines
    assert recipe_lines(recipes[0], recipes[0], "a", "a") == []


def test_names_cannot_end_the_script_or_become_elements():
    registry = default_registry()
    name = "</script><script>alert(1)</script>"
    found = describe("llama", registry)
    sheet = found.sheet(registry)
    sheet = type(sheet)(name, sheet.facts, sheet.recipe, sheet.numbers | {"note": name})
    text = compare_page([found], [sheet], [diagram_of(found.recipe, name, registry)])
    assert "<script>alert" not in text
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert json.loads(data[1])["models"][0]["note"] == name


@pytest.mark.parametrize(
    "name", ["gemma2", "llama", "mamba", "t5", "bert", "deepseek-v3", "prefix-lm", "llada"]
)
def test_flops_between_its_points_are_exact(name):
    recipe = describe(name, default_registry()).recipe
    points = flops_points(recipe)

    def between(points, tokens):
        left = max((p for p in points[:-1] if p[0] <= tokens), key=lambda p: p[0])
        right = points[points.index(left) + 1]
        return left[1] + (right[1] - left[1]) * (tokens - left[0]) / (right[0] - left[0])

    for tokens in (1, 7, 4095, 4096, 4097, 100_000):
        if points["decode"]:
            assert between(points["decode"], tokens) == pytest.approx(decode_flops(recipe, tokens), rel=1e-12)
        else:
            assert decode_flops(recipe, tokens) is None
        if not points["sums"]:
            head = points["head"] * (tokens - 1) / tokens
            expected = prefill_flops(recipe, tokens)
            assert between(points["prefill"], tokens) - head == pytest.approx(expected, rel=1e-9)


def test_one_model_has_a_page_too():
    text, _ = made("bert")
    assert "Differences in words" not in text and "Masked language model head" in text


def test_a_model_that_another_library_runs_has_a_page_too():
    from zoo_mlx_lm.spec import Bridged

    recipe = Bridged("gemma3", "{}", vocab=100, dim=16, depth=7, parameter_count=12.0)
    assert flops_points(recipe) == {"decode": None, "prefill": None, "head": 0, "sums": False}
