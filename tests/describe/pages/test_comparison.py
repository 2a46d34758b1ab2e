"""The page that compares models, without a browser: what it holds, and that it needs nothing else."""

import json
import re
from html.parser import HTMLParser

import pytest

from zoo.describe import compare, describe
from zoo.describe.facts.counts import decode_flops, prefill_flops
from zoo.describe.pages.comparison import about_record, app_element, choices, common, compare_page
from zoo.describe.pages.model_card import flops_points
from zoo.describe.pages.template import asset
from zoo.errors import ZooError
from zoo.host.registry import default_registry


def made(*names, **settings):
    registry = default_registry()
    return compare_page([describe(name, registry) for name in names], registry, **settings)


@pytest.fixture(scope="module")
def page():
    return made("llama", "mixtral", context=2000, quantize="4")


class Cells(HTMLParser):
    """The rows of the table that is there without scripts, and every attribute that names a file or an address."""

    def __init__(self):
        super().__init__()
        self.rows, self.addresses, self.open, self.row = {}, [], None, []

    def handle_starttag(self, tag, attributes):
        self.addresses += [value for name, value in attributes if name in ("src", "href", "action")]
        self.row = [] if tag == "tr" else self.row
        self.open = tag

    def handle_endtag(self, tag):
        if tag == "tr" and self.row:
            self.rows[self.row[0].removeprefix("≠ ")] = self.row[1:]
        self.open = None

    def handle_data(self, data):
        if self.open in ("td", "th"):
            self.row.append(data)


def parsed(text):
    cells = Cells()
    cells.feed(text)
    return cells


def test_without_scripts_its_rows_are_those_of_the_command(page):
    registry = default_registry()
    sheets = [describe(name, registry).sheet(registry, 2000, "4") for name in ("llama", "mixtral")]
    rows = parsed(page).rows
    shown = [row for row in compare(sheets) if not (row.detail or row.empty or row.name == "fits")]
    assert {row.label: list(row.texts) for row in shown} == {key: row for key, row in rows.items() if row[1:]}
    assert "cache at 2,000 tokens" in rows and "weights, 4 bits" in rows


def test_without_scripts_it_tells_the_differences(page):
    assert "<li>Vocabulary of 32,000 instead of 128,256.</li>" in page


def test_it_needs_nothing_from_outside(page):
    assert parsed(page).addresses == ["data:,"]
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@import|url\(", page)
    assert "{{" not in page


def test_settings_that_cannot_be_are_refused():
    for settings in ({"quantize": "five"}, {"context": -1}):
        with pytest.raises(ZooError):
            made("llama", **settings)


def test_names_cannot_end_the_script_or_become_elements(tmp_path):
    registry = default_registry()
    path = tmp_path / "<script>alert(1)</script>.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(describe("llama:pocket", registry).recipe.to_json()))
    text = compare_page([describe(str(path), registry)], registry)
    assert "<script>alert" not in text and "\\u003cscript>alert" in text


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


def test_a_model_that_another_library_runs_has_a_page_too():
    from zoo_mlx_lm.spec import Bridged

    recipe = Bridged("gemma3", "{}", vocab=100, dim=16, depth=7, parameter_count=12.0)
    assert flops_points(recipe) == {"decode": None, "prefill": None, "head": 0, "sums": False}


def test_both_languages_have_all_words():
    english, chinese = (json.loads(asset(f"compare.{language}.json")) for language in ("en", "zh"))
    assert list(english) == list(chinese)
    places = re.compile(r"\{\w+\}")
    for key, text in english.items():
        assert set(places.findall(text)) == set(places.findall(chinese[key])), key
    asked = re.findall(r"""\bsay(?:\.call)?\((?:zooCompare, )?"(\w+)\"""", "".join(map(asset, scripts())))
    asked += re.findall(r"""section\("(\w+)\"""", "".join(map(asset, scripts())))
    assert asked and set(asked) <= set(english)


def scripts():
    from zoo.describe.pages.comparison import SCRIPTS

    return (*SCRIPTS, "compare.js")


def test_formats_are_called_as_in_the_sheet():
    from zoo.describe.facts.sheet import format_label

    shared = common("en")
    assert all(one["label"] == format_label(name) for name, one in shared["formats"].items())


def test_an_element_may_let_a_person_choose():
    registry = default_registry()
    found = [describe(name, registry) for name in ("llama", "gpt2")]
    more = {"models": choices(found), "folder": "cards/"}
    text = app_element(found[:1], registry, more=more)
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', text, re.S)[1])
    assert [one["name"] for one in data["models"]] == ["llama:8b", "gpt2:small"]
    assert data["names"] == ["llama:8b"] and data["folder"] == "cards/"


def test_the_record_says_of_which_machine_it_is():
    versions = {"machine": "Linux x86_64, 2 cores", "backend": "CPU", "blas": "MKL", "mlx": "0.32"}
    record = {"versions": versions, "date": "2026-01-02", "load": "0.1 – 1.0", "tokens": 48, "new": 16}
    text = about_record(record)
    assert all(part in text for part in ("2026-01-02", "2 cores", "MKL", "0.1 – 1.0", "48 tokens"))
    assert about_record({}) == ""
