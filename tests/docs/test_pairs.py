"""The pages of pairs: the same in both languages, and what they say of records is what the records show."""

import re
from pathlib import Path

import pytest
from building import lab_records as records
from figures.two_stacks import TOKENS, sheets

from tests.helpers.code_of_pages import run
from zoo.describe import describe
from zoo.describe.differences import differences, is_of_sizes
from zoo.host.registry import default_registry
from zoo_lab.report import findings

DOCS = Path(__file__).parents[2] / "docs"
PAIRS = sorted(path.stem for path in (DOCS / "compare").glob("*-*.md"))


def page(name, language):
    return (DOCS / ("zh" if language == "zh" else "") / "compare" / f"{name}.md").read_text(encoding="utf-8")


def computed(text):
    """What a page has computed: its code and commands, its comparison, and its findings."""
    parts = re.findall(r"^<!-- (\w+): (.*) -->$", text, re.MULTILINE)
    return [*run(text), *parts, *sorted(re.findall(r"<!-- finding: (.*?) -->", text))]


@pytest.mark.parametrize("name", PAIRS)
def test_both_languages_show_the_same(name):
    english = computed(page(name, "en"))
    assert any(part[0] == "compare" for part in english)
    assert english == computed(page(name, "zh"))


def test_every_pair_is_listed():
    assert len(PAIRS) >= 10
    for language in ("en", "zh"):
        listed = page("pairs", language)
        assert all(f"({name}.md)" in listed and f"\n{name}\n" in listed for name in PAIRS)


def test_a_finding_is_told_only_with_its_verdict():
    words = records.finding("experts", 1, "seen")
    assert re.fullmatch(r"difference −0\.\d+ nats a token, interval .+, 3 runs", words)
    with pytest.raises(ValueError, match="seen, not contrary"):
        records.finding("experts", 1, "contrary")


def test_every_finding_can_be_told_in_chinese():
    told = [
        records.in_chinese(one.words)
        for path in sorted((DOCS / "records" / "lab").glob("*.json"))
        for one in findings(records.record(path.stem))
    ]
    assert len(told) > 40
    assert not any(re.search(r"[a-z]{3}", text) for text in told)


def test_mixtral_differs_from_mistral_in_what_its_page_names():
    mistral, mixtral = (describe(name, default_registry()).recipe for name in ("mistral:7b", "mixtral:8x7b"))
    experts, *others = sorted(differences(mistral, mixtral), key=lambda sentence: "experts" not in sentence)
    assert experts.startswith("Each layer's feed-forward is replaced by 8 experts")
    assert sorted(others) == [
        "Attention has no window.",
        "Rotary base 1,000,000 instead of 10,000.",
    ]


def test_llada_differs_from_llama_in_what_its_page_names():
    llama, llada = (describe(name, default_registry()).recipe for name in ("llama:8b", "llada:8b"))
    assert [text for text in differences(llama, llada) if not is_of_sizes(text)] == [
        "Every token sees every other.",
        "Multi-head attention with 32 heads instead of grouped-query attention with 32 heads and 8 key/value heads.",
        "Rotary base 500,000 without scaling instead of 500,000 with LLaMA-3 scaling ×8.",
    ]


def test_two_stacks_cost_what_their_page_says():
    """About as many parameters as one stack of as many layers, less arithmetic for a token, half the cache."""
    two, reading, writing = sheets()
    assert 1 < two.value("parameters.total") / reading.value("parameters.total") < 1.15
    assert two.value("flops.prefill") < 0.7 * reading.value("flops.prefill")
    assert two.value("flops.decode") < 0.7 * writing.value("flops.decode")
    held = (two.value("cache.token") + two.value("cache.source_token")) * TOKENS
    assert 2 * held == writing.value("cache.context")
