"""Texts of the library in Chinese: whatever the zoo's own models say of themselves is in the catalogue."""

import itertools
import re
import tomllib
from importlib.resources import files

import pytest

from tests.helpers.known_texts import NAMES, WORD, is_known
from zoo.architecture import Corpus, Experiment, FactSource, Objective, Sampler
from zoo.describe import describe
from zoo.describe.described import NOT_MEASURED, pocket_facts
from zoo.describe.diagram import diagram_in, diagram_of, marked, to_svg
from zoo.describe.diagram.svg import described
from zoo.describe.diagram.text_width import lines_within, text_width
from zoo.describe.differences import differences
from zoo.describe.language import in_language, joined, key_of, message
from zoo.errors import ZooError
from zoo.host.registry import default_registry

PLACE = re.compile(r"\{(\w+)(?::\w+)?\}")


@pytest.fixture(scope="module")
def models():
    """Every preset that has numbers."""
    registry = default_registry()
    return [
        describe(f"{architecture.name}:{preset.name}", registry)
        for architecture in registry.architectures.values()
        for preset in architecture.presets
        if preset.config
    ]


def unknown(texts):
    return {text for text in texts if not is_known(text)}


def test_english_stays_as_it_is():
    assert in_language("Heads of width 64 instead of 32.", "en") == "Heads of width 64 instead of 32."


@pytest.mark.parametrize(
    ("text", "chinese"),
    [
        ("grouped-query attention", "分组查询注意力"),
        (message("{n} tokens", n="131,072"), "131,072 个词元"),
        (
            joined(", ", ["rotary", message("{value} ×{n}", value="LLaMA-3 scaling", n=8)]),
            "旋转（RoPE），LLaMA-3 缩放 ×8",
        ),
        (message("{new} instead of {old}.", new="RMSNorm", old="LayerNorm"), "RMSNorm 取代 LayerNorm。"),
        (message("{n} billion", n="46.7"), "467 亿"),
        (message("{n} million", n="124"), "1.24 亿"),
        (message("{n} million", n="2.48"), "248 万"),
        (message("{n} trillion", n="1.04"), "1.04 万亿"),
        (joined(" ", ["No norms.", "A bias on the logits."]), "没有归一化。logits 有偏置。"),
    ],
)
def test_text_in_chinese(text, chinese):
    assert in_language(text, "zh") == chinese and is_known(text)


@pytest.mark.parametrize(
    ("base", "other", "sentence", "chinese"),
    [
        (
            "mistral:7b",
            "mixtral:8x7b",
            "Each layer's feed-forward is replaced by 8 experts, of which a token uses 2 "
            "(12.7 of 46.7 billion parameters are used for a token).",
            "每层的前馈网络换成 8 个专家，每个词元使用其中 2 个（467 亿参数中，每个词元使用 127 亿）。",
        ),
        (
            "llama:pocket",
            "gpt2:small",
            "Multi-head attention with 12 heads instead of grouped-query attention with 4 heads and 2 key/value heads.",
            "12 个头的多头注意力取代 4 个头、2 个键/值头的分组查询注意力。",
        ),
    ],
)
def test_difference_in_chinese(base, other, sentence, chinese):
    registry = default_registry()
    found = differences(describe(base, registry).recipe, describe(other, registry).recipe)
    assert in_language(found[found.index(sentence)], "zh") == chinese


def test_text_of_a_third_party_stays():
    clock = "a clock in the layer"
    assert in_language(clock, "zh") == clock and not is_known(clock)
    placed = message("In {place}: {rest}.", place="every other layer", rest=clock)
    assert in_language(placed, "zh") == "每隔一层：a clock in the layer。" and not is_known(placed)
    assert in_language(message("{n} clocks", n=2), "zh") == "2 clocks"


def test_unknown_language_is_named():
    with pytest.raises(ZooError, match="`language` 'fr': not one of en, zh"):
        in_language("yes", "fr")


@pytest.mark.slow
def test_every_fact_is_known(models):
    registry = default_registry()
    texts = set()
    for one in models:
        for options in ({}, {"context": 1000, "quantize": "4"}):
            sheet = one.sheet(registry, **options)
            texts |= {text for fact in sheet.facts for text in (fact.label, fact.text)}
    assert len(texts) > 1000 and unknown(texts) == set()


def test_what_is_known_of_small_checkpoints_is_known():
    record = {"peak_memory_bytes": 10**9}
    texts = {
        text
        for architecture in default_registry().architectures.values()
        for fact in pocket_facts(architecture, record)
        for text in (fact.label, fact.text)
        if fact.name not in ("pocket", "corpus") or text == fact.label  # names
    }
    assert {"1 GB", NOT_MEASURED, "training steps"} <= texts and unknown(texts) == set()


def test_differences_are_known(models):
    pairs = list(itertools.permutations(models, 2))[:: 31 if len(models) < 100 else 97]
    told = {sentence for base, other in pairs for sentence in differences(base.recipe, other.recipe)}
    assert len(told) > 300 and unknown(told) == set()


def test_records_of_plugins_are_known():
    registry = default_registry()
    tables = (
        *(
            registry.architectures,
            registry.blocks,
            registry.strategies,
            registry.table(Corpus).listed(),
        ),
        *(registry.table(kind).listed() for kind in (Objective, Experiment, Sampler, FactSource)),
    )
    own = [one for records in tables for one in records.values() if registry.plugin_of(one).first_party]
    assert len(own) > 80 and unknown(one.summary for one in own) == set()


@pytest.mark.slow
def test_diagrams_have_no_english_but_names(models):
    registry = default_registry()
    for one in models:
        plain = diagram_of(one.recipe, "", registry)
        drawn = diagram_in(plain, "zh")
        left = [word for word in WORD.findall(described(drawn)) if word not in NAMES]
        assert left == [], one.origin


def test_diagram_is_laid_out_after_its_texts_and_keeps_its_marks():
    registry = default_registry()
    two = marked(
        [diagram_of(describe(name, registry).recipe, name, registry) for name in ("llama", "mixtral")]
    )
    picture = to_svg([diagram_in(one, "zh") for one in two])
    assert "混合专家（MoE）" in picture and "≠ 8 个专家" in picture and "Mixture" not in picture


def test_lines_of_chinese_end_anywhere_but_before_punctuation():
    text = "带因果掩码的多头潜在注意力（MLA），再加一个 RMSNorm。"
    lines = lines_within(text, 100, 13)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(text_width(line, 13) <= 116 for line in lines)  # punctuation may stand over the edge
    assert not any(line[0] in "，。）" for line in lines)
    assert any("RMSNorm" in line for line in lines)


def entries():
    for file in (files("zoo.describe.languages") / "zh").iterdir():
        for table in tomllib.loads(file.read_text(encoding="utf-8")).values():
            yield from table.items()


def test_entries_have_the_same_places_and_one_target():
    seen = {}
    for source, target in entries():
        places = {place[1] for place in PLACE.finditer(source)}
        assert {place[1] for place in PLACE.finditer(target)} <= places, source
        assert seen.setdefault(key_of(source), target) == target, source


def test_chinese_has_chinese_punctuation():
    for source, target in entries():
        assert not re.search(r"[\u3400-\u9fff] ?[,;:?!]|[,;:?!] ?[\u3400-\u9fff]", target), source
        assert not target.endswith(("。", ".")), source
