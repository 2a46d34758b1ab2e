"""Sheets: typed values with units, the same for every architecture, and what plugins add to them."""

import json
from functools import cache

import pytest

import zoo
from zoo.describe import aligned, amount, compare, describe, facts_of, fields_of, text_of
from zoo.describe.facts.memory import GROUP, POLICIES, STATE_BYTES, format_of
from zoo.errors import ZooError
from zoo.host.registry import default_registry

NAMES = sorted(default_registry().architectures)


@cache
def recipe(name):
    return describe(name, default_registry()).recipe


def sheet(name, **how):
    return describe(name, default_registry()).sheet(default_registry(), **how)


def rows(*names):
    return {row.name: row for row in compare([sheet(name) for name in names])}


@pytest.mark.parametrize("name", NAMES)
def test_every_architecture_has_a_sheet_of_numbers(name):
    told = sheet(name).to_json()
    facts = json.loads(json.dumps(told))["facts"]
    for fact in facts.values():
        assert type(fact["value"]) in (int, float, str, bool, list, type(None)), fact
        assert fact["label"] and (
            not fact.get("unit") or type(fact["value"]) in (int, float, list, type(None))
        )
    assert facts["parameters.total"]["unit"] == "parameters" and facts["weights.4"]["unit"] == "bytes"
    assert 12 <= len([fact for fact in sheet(name) if not fact.detail]) <= 45


def test_facts_are_asked_for_by_name():
    llama = sheet("llama")
    assert llama["decoder.kv_heads"].value == 8 and llama.value("decoder.hidden") == 14336
    assert llama["cache.token"].value == 32 * 2 * 8 * 128 * 2
    assert llama["cache.128k.4-bit"].value == 32 * 2 * 8 * 128 * 131072 * (0.5 + 4 / 64)
    assert llama["licence"].value == "Llama 3.1 Community License"
    assert llama.value("tied") is False and llama.get("nothing") is None
    with pytest.raises(ZooError, match=r"no fact 'cache'; there are parameters\.total"):
        llama["cache"]


def test_layers_that_differ_have_a_value_each():
    windows = sheet("gemma2")["decoder.window"]
    assert windows.value == (4096, None) * 13 and windows.text == "4,096 in 13 of 26 layers, in turn"
    assert sheet("deepseek-v3")["decoder.experts"].text == "256 in 58 of 61 layers"


def test_a_page_can_compute_cache_and_weights_from_the_numbers():
    for name, context, format in (("gemma2", 8192, "4"), ("deepseek-v3", 70_000, "mxfp4"), ("mamba", 9, "8")):
        told = sheet(name, context=context, quantize=format)
        numbers = json.loads(json.dumps(told.numbers))
        cache = sum(
            kept["numbers_per_token"] * min(context, kept["window"] or context) * POLICIES["16-bit"]
            + kept["state_numbers"] * STATE_BYTES
            for kept in numbers["cache"]
        )
        assert told.value("cache.context") == cache
        chosen = format_of(format)
        scale = 4 if format.isdecimal() else 1
        assert not format.isdecimal() or chosen.group == GROUP
        packed = sum(
            count * chosen.bits // 8 + count // chosen.group * scale
            if inputs % chosen.group == 0
            else count * 2
            for inputs, count in numbers["weights"]["rows"]
        )
        routers = sum(count + count // GROUP * 4 for _, count in numbers["weights"]["router_rows"])
        assert told.value("weights.chosen") == packed + routers + numbers["weights"]["whole"] * 2


def test_what_cannot_be_asked_is_refused():
    for how, message in (
        (dict(context=0), "`context` must be a number of tokens, got 0"),
        (dict(context="many"), "`context` must be a number of tokens, got 'many'"),
        (dict(quantize="q4"), "`quantize` q4: not one of float32"),
        (dict(quantize="1"), "`quantize` 1: not one of"),
    ):
        with pytest.raises(ZooError, match=message):
            facts_of(recipe("llama"), **how)


def test_texts_are_made_for_people():
    assert [amount(n) for n in (5, 1_234, 1_049_728, 8_030_261_248)] == ["5 ", "1.23 k", "1.05 M", "8.03 G"]
    assert [amount(n) for n in (999_499, 999_999, 1.4e12)] == ["999 k", "1 M", "1.4 T"]
    assert text_of(8_030_261_248, "parameters") == "8.03 B" and text_of(8_030_261_248, "FLOPs") == "8.03 G"
    assert (
        text_of(1_049_728, "parameters") == "1.05 M" and text_of(1_040_000_000_000, "parameters") == "1.04 T"
    )
    assert text_of(131072, "tokens") == "131,072" and text_of(1_240_000_000, "bytes") == "1.24 GB"
    assert text_of(True) == "yes" and text_of(None) == "–" and text_of(1e-6) == "1e-06"
    assert text_of((1, 1, 2)) == "1 ×2, 2 ×1" and text_of((1, 2) * 4) == "1 ×4, 2 ×4, in turn"
    assert text_of((1, None, 2) * 4) == "1 ×4, none ×4, 2 ×4, in turn"


def test_decoders_stand_beside_decoders_whatever_the_path_says():
    found = rows("gpt2", "transformer")
    assert found["decoder.layers"].values == (12, 6) and found["encoder.layers"].values == (None, 6)
    assert found["encoder.layers"].label == "encoder layers"
    assert found["heads"].values == (12, 8) and found["heads"].label == "heads"
    found = rows("bert", "transformer")
    assert found["encoder.layers"].values == (12, 6) and found["decoder.layers"].values == (None, 6)


def test_the_only_stacks_stand_beside_each_other():
    found = rows("gpt2", "bert", "llada")
    assert found["layers"].values == (12, 12, 32) and not any(
        "." in name for name in found if "layers" in name
    )
    assert found["causality"].texts == ("earlier tokens", "all tokens", "all tokens")


def test_latent_attention_stands_beside_grouped_queries():
    found = rows("llama", "deepseek-v3")
    assert found["mixer"].texts == ("grouped-query attention", "multi-head latent attention")
    assert found["heads"].values == (32, 128) and found["latent"].values == (None, 512)


def test_rows_know_what_differs_and_keep_their_order():
    found = rows("gpt2", "gpt2-postln")
    assert found["placement"].differs and not found["heads"].differs
    assert list(found)[:2] == ["parameters.total", "parameters.active"]
    assert rows("llama")["heads"].differs is False


def test_fields_tell_equal_layers_once_and_others_by_count():
    def fields(found):
        return {fact.key: fact for fact in fields_of(found)}

    assert fields(recipe("mistral:7b"))["layer.mixer.window"].value == 4096
    assert fields(recipe("qwen2:tiny"))["layer.mixer.window"].text == "6 in 2 of 3 layers"
    turned = recipe("llama:pocket").change_layers(
        lambda index, layer: dict(mixer=dict(window=8 if index % 2 else None))
    )
    assert fields(turned)["layer.mixer.window"].text == "8 in 2 of 4 layers, in turn"
    both = {row.name: row for row in aligned([fields_of(recipe(n)) for n in ("transformer", "bart")])}
    assert both["decoder.embedding.shared"].values == (True, True)
    assert both["layer.mixer.heads"].values == (8, 16) and both["start"].values == (0, 2)


PLUGIN = """
from zoo.architecture import FactSource, hookimpl
from zoo.describe import Fact

def ratio(recipe):
    yield Fact("mine.ratio", "width a layer", recipe.dim // len(recipe.layers), "numbers")

def broken(recipe):
    return 1 / 0

def known(recipe):
    return [Fact("width", "another width", 1), "no fact"]

@hookimpl
def zoo_facts():
    yield FactSource("ratio", "facts_plugin:ratio", "how wide for its depth")
    yield FactSource("broken", "facts_plugin:broken")
    yield FactSource("known", "facts_plugin:known")
"""


@pytest.mark.slow
def test_a_plugin_adds_facts_and_a_broken_one_takes_nothing_down(site, command):
    site.add("zoo-facts", "facts_plugin", PLUGIN)
    done = command("show", "llama:pocket", "--json", environment=site.environment)
    facts = json.loads(done.stdout)["facts"]
    assert facts["mine.ratio"] == {"label": "width a layer", "value": 32, "unit": "numbers"}
    assert facts["width"]["value"] == 128
    assert "facts broken: ZeroDivisionError: division by zero" in done.stderr
    assert "facts known: there is a fact 'width' already" in done.stderr
    assert "facts known: gave 'no fact', not a zoo.describe.Fact" in done.stderr
    compared = command("compare", "llama:pocket", "gpt2:pocket", environment=site.environment)
    assert "width a layer" in compared.stdout
    card = command("plugins", "--card", "facts_plugin", environment=site.environment).stdout
    assert "| `ratio` | how wide for its depth |" in card


def test_a_loaded_model_tells_its_facts():
    loaded = zoo.load("llama")
    facts = loaded.facts
    assert facts.value("parameters.total") == 1_049_728
    assert facts.value("tokenizer.kind") == "BPE" and facts.value("tokenizer.size") == 2048
    assert facts.value("tokenizer.bytes") is True
    assert facts.title == str(loaded.folder) and facts.recipe is loaded.recipe
