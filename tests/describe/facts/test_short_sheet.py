"""The short sheet: some fifteen rows, with every number of the facts that share them."""

import pytest

from zoo.describe import describe, facts_of, short
from zoo.host.registry import default_registry


def lines(name, tokenizer=False):
    registry = default_registry()
    found = describe(name, registry)
    sheet = found.sheet(registry, tokenizer=found.tokenizer(registry) if tokenizer else None)
    return {line.label: line for line in short(sheet)}, sheet


@pytest.mark.parametrize("name", sorted(default_registry().architectures))
def test_every_architecture_has_some_fifteen_rows_that_leave_no_fact_out(name):
    rows, sheet = lines(name)
    assert 10 <= len(rows) <= 19
    shown = [key for line in rows.values() for key in line.names]
    assert len(shown) == len(set(shown))
    implied = {"causality"} if {"encoder.causality", "decoder.causality"} & {f.name for f in sheet} else set()
    asked = {fact.key for fact in sheet if (not fact.detail and fact.value is not None) or fact.words}
    assert asked - {key.removeprefix("encoder.").removeprefix("decoder.") for key in shown} <= implied


def test_facts_that_belong_together_share_a_row():
    rows, _ = lines("llama")
    assert rows["parameters"].text == "8.03 B"
    assert rows["heads"].text == "32, 8 key/value, width 128"
    assert rows["norm"].text == "RMSNorm, before each part"
    assert rows["cache"].text == "131 kB a token, 537 MB at 4,096 tokens"
    assert rows["vocabulary"].text == "128,256, head not tied"
    assert rows["weights"].text == "16.1 GB in bfloat16"
    assert lines("gpt2")[0]["heads"].text == "12, width 64"  # as many key and value heads as heads


def test_layers_are_named_once_for_all_facts_of_a_row():
    rows, _ = lines("deepseek-v3")
    assert rows["parameters"].text == "671 B, 36.6 B used for a token"
    assert rows["experts"].text == (
        "256, 8 used for a token, width 2,048, a shared one of width 2,048; in 58 of 61 layers"
    )
    assert rows["feed-forward"].text.endswith("; width 18,432 in 3 of 61 layers")
    assert lines("qwen3-next")[0]["heads"].text == (
        "32 ×36, 16 ×12, in turn; 2 key/value, width 256, RMSNorm (1 + w) on each query and key in 12 of 48 layers, in turn"
    )


def test_stacks_that_differ_have_rows_of_their_own():
    rows, _ = lines("transformer")
    assert rows["layers"].text == "6 in the encoder, 6 in the decoder, width 512"
    found = describe("transformer", default_registry()).recipe
    layers = tuple(layer.change(mixer=dict(heads=4)) for layer in found.encoder.layers)
    changed = found.change(encoder=found.encoder.change(layers=layers))
    rows = {line.label: line.text for line in short(facts_of(changed))}
    assert rows["encoder heads"] == "4, width 128" and rows["decoder heads"] == "8, width 64"


def test_a_tokenizer_at_hand_has_a_row():
    assert (
        lines("llama:pocket", tokenizer=True)[0]["tokenizer"].text == "BPE, 2,048 tokens, any byte has tokens"
    )
    assert "tokenizer" not in lines("llama:8b", tokenizer=True)[0]
    assert describe("llama:8b", default_registry()).tokenizer(default_registry()) is None
