"""Differences are told in sentences, by role, and none is left out."""

from dataclasses import dataclass
from functools import cache

import pytest

from zoo.describe import base_of, describe
from zoo.describe.differences.compared import where
from zoo.describe.differences.recipes import differences, is_of_sizes
from zoo.host.registry import default_registry
from zoo.recipe import Attention, GatedMLP, LayerNorm, Spec

NAMES = sorted(default_registry().architectures)


@cache
def recipe(name):
    return describe(name, default_registry()).recipe


def from_base(name):
    found = describe(name, default_registry())
    return differences(base_of(found, default_registry())[1], found.recipe, sizes=False)


def changed(**changes):
    """What differs in llama's pocket once all layers are changed so."""
    before = recipe("llama:pocket")
    return differences(before, before.change_layers(**changes))


def test_mixtral_is_told_as_a_colleague_would():
    assert differences(recipe("llama"), recipe("mixtral")) == [
        "Rotary base 1,000,000 without scaling instead of 500,000 with LLaMA-3 scaling ×8.",
        "Each layer's feed-forward is replaced by 8 experts, of which a token uses 2 (12.7 of 46.7 billion parameters "
        "are used for a token).",
        "Vocabulary of 32,000 instead of 128,256.",
        "Context of 32,768 instead of 131,072.",
    ]


def test_a_variant_differs_from_its_base_in_structure_alone():
    assert from_base("qwen3") == ["RMSNorm on each query and key head."]
    assert from_base("qwen2") == ["Biases on queries, keys and values."]
    assert from_base("mistral") == ["Attention sees a window of 4,096 tokens."]
    assert from_base("llada") == ["Every token sees every other."]
    assert from_base("gpt2") == [
        "Norms come before each part (Pre-LN) instead of after each sum (Post-LN).",
        "A final norm before the head.",
    ]


def test_a_part_that_some_layers_lack_is_told_with_these_layers():
    told = from_base("nemotron-h")
    assert (
        "In 25 of 56 layers: no mixer." in told
        and "In 4 of 56 layers: grouped-query attention instead of state space." in told
    )
    assert "Squared ReLU feed-forward is added to 25 of 56 layers." in told


def test_norms_after_each_part_are_told_by_their_place():
    assert from_base("olmo2") == [
        "RMSNorm over all query heads together, and over all key heads.",
        "Norms come after each part, before its sum instead of before each part (Pre-LN).",
    ]


def test_a_model_does_not_differ_from_itself():
    for name in NAMES:
        assert differences(recipe(name), recipe(name)) == []


@pytest.mark.parametrize("index", range(len(NAMES)), ids=NAMES)
def test_pairs_are_told_in_whole_sentences(index):
    name = NAMES[index]
    for other in (NAMES[index:] + NAMES[:index])[::3]:  # itself, and a third of the others
        sentences = differences(recipe(name), recipe(other))
        assert bool(sentences) == (recipe(name) != recipe(other)), other
        for sentence in sentences:
            assert sentence.endswith(".") and not sentence[0].islower() and "None" not in sentence, sentence
            assert "`" not in sentence and "  " not in sentence and ".." not in sentence, sentence
        assert len(sentences) == len(set(sentences))


def test_each_change_has_its_sentence():
    for changes, expected in (
        (dict(mixer=dict(window=64)), "Attention sees a window of 64 tokens."),
        (
            dict(mixer=dict(kv_heads=4)),
            "Multi-head attention with 4 heads instead of grouped-query attention with",
        ),
        (dict(mixer=dict(bias=True)), "Biases on queries, keys and values."),
        (dict(mixer=dict(rope=dict(theta=5e5))), "Rotary base 500,000 instead of 10,000."),
        (dict(mixer=dict(rope=dict(dims=16))), "16 of each head are rotated."),
        (dict(mixer=dict(scale=1.0)), "Scores are not scaled by the head's width."),
        (dict(feedforward=dict(hidden=64)), "Feed-forward 64 wide instead of 384."),
        (dict(feedforward=dict(activation="gelu")), "GEGLU instead of SwiGLU."),
        (dict(mixer=dict(scale=1 / 64)), "Scores are divided by 64."),
        (dict(mixer=dict(scale=0.3)), "Scores are multiplied by 0.3."),
        (dict(residual_scale=0.22), "What each part adds to the residual stream is multiplied by 0.22."),
        (dict(parallel=True), "Mixer and feed-forward are parallel: one residual sum takes both."),
        (dict(placement="post"), "Norms come after each sum (Post-LN) instead of before each part (Pre-LN)."),
        (
            dict(mixer_norm=LayerNorm(), feedforward_norm=LayerNorm()),
            "LayerNorm, RMSNorm instead of RMSNorm.",
        ),
    ):
        (sentence,) = changed(**changes)
        assert sentence.startswith(expected)


def test_scales_are_told_by_their_number_and_by_the_width_where_it_is_their_root():
    before = recipe("llama:pocket")
    wide = before.change(embedding=dict(dim=64))
    for base, scale, expected in (
        (before, 1 / 8, "divided by 8"),
        (before, 12.0, "multiplied by 12"),
        (before, 128**-0.5, "divided by √width"),
        (before, 512**-0.5, "divided by √512"),
        (before, 0.22, "multiplied by 0.22"),
        (wide, 1 / 8, "divided by 8 (√width)"),
        (wide, 8.0, "multiplied by 8 (√width)"),
    ):
        (told,) = differences(base, base.change(head=dict(scale=scale)))
        assert told == f"Hidden states are {expected} before the head."
        (told,) = differences(base, base.change(embedding=dict(scale=scale)))
        assert told == f"Embeddings are {expected}."


def test_layers_without_positions_are_told_where_others_have_some():
    before = recipe("llama:pocket")
    some = before.change_layers(lambda index, _: dict(mixer=dict(rope=None)) if index == 3 else {})
    assert differences(before, some) == ["In layer 4 of 4: no positions."]
    assert differences(some, before) == ["Every layer has positions."]
    assert from_base("smollm3") == ["In one layer in 4: no positions."]


@dataclass(frozen=True)
class ScaledLayer(Spec):
    """x + `scale` · f(norm(x)), for the mixer and then for the feed-forward."""

    kind, name = "layer", "scaled"
    mixer: Spec
    feedforward: Spec
    mixer_norm: Spec
    feedforward_norm: Spec
    scale: float = 0.22


def test_a_layer_that_says_nothing_of_its_norms_does_not_differ_in_them():
    plain = recipe("llama:pocket")
    parts = {name: value for name, value in vars(plain.layers[0]).items() if isinstance(value, Spec)}
    scaled = plain.change(layers=(ScaledLayer(**parts),) * 4)
    formula = "x + 0.22 · f(norm(x)), for the mixer and then for the feed-forward"
    assert differences(plain, scaled) == [f"The layer: {formula}."]
    assert differences(scaled, plain) == [f"A plain layer instead of a scaled layer ({formula})."]


def test_the_same_scale_written_out_is_no_difference():
    assert changed(mixer=dict(scale=32**-0.5)) == []


def test_layers_are_named_where_not_all_differ():
    before = recipe("llama:pocket")
    turned = before.change_layers(lambda index, _: dict(mixer=dict(window=8 if index % 2 else None)))
    assert differences(before, turned) == ["In every other layer: attention sees a window of 8 tokens."]
    assert differences(turned, before) == ["Attention has no window."]
    last = before.change_layers(lambda index, _: dict(feedforward=dict(hidden=64 if index == 3 else 384)))
    assert differences(before, last) == ["In layer 4 of 4: feed-forward 64 wide instead of 384."]
    assert where([0, 1], 4) == "the first 2 layers" and where([2, 3], 4) == "the last 2 of 4 layers"
    assert where([0, 3, 4], 6) == "3 of 6 layers" and where([2, 5], 6) == "one layer in 3"


def test_encoder_and_decoder_are_told_apart_where_they_differ():
    assert "Decoder: no biases in cross-attention." in from_base("t5")
    told = differences(recipe("gpt2"), recipe("transformer"))
    assert told[0] == "An encoder reads the source, and a decoder writes the target."
    assert "Cross-attention is added to each layer." in told


@dataclass(frozen=True)
class Echo(Spec):
    """A sum of the last `reach` tokens, faded (Nobody, 2031). What comes after is not told."""

    kind, name, recurrent = "mixer", "echo", True
    reach: int = 3


@dataclass(frozen=True)
class Sharp(Attention):
    """Attention whose scores are sharpened."""

    kind, name = "mixer", "sharp-attention"
    power: float = 2.0


@dataclass(frozen=True)
class Plain(GatedMLP):
    name = "plain"
    strength: int = 1


def test_a_block_that_nobody_knows_is_told_by_its_docstring_and_fields():
    assert changed(mixer=Echo()) == [
        "Echo (a sum of the last 3 tokens, faded) instead of grouped-query attention.",
        "No positions, where the other has rotary ones: the layers read tokens in their order.",
    ]
    before = recipe("llama:pocket")
    old = before.change_layers(mixer=Echo())
    assert differences(old, before.change_layers(mixer=Echo(5))) == ["Mixer reach: 5 instead of 3."]
    mixer = before.layers[0].mixer
    sharp = Sharp(**{name: getattr(mixer, name) for name in ("heads", "kv_heads", "head_dim", "rope")})
    (told,) = changed(mixer=sharp)
    assert (
        told
        == "Grouped-query attention (attention whose scores are sharpened) instead of grouped-query attention."
    )
    (told,) = differences(
        before.change_layers(feedforward=Plain(384)), before.change_layers(feedforward=Plain(384, strength=2))
    )
    assert told == "Feed-forward strength: 2 instead of 1."


@pytest.mark.parametrize(
    ("sentence", "of_sizes"),
    [
        ("Vocabulary of 32,000 instead of 128,256.", True),
        ("12 + 12 layers instead of 6 + 6, width 1,024 instead of 512.", True),
        ("Rotary base 1,000,000 instead of 10,000.", True),
        ("Context of 131,072.", True),
        ("Rotary base 500,000 without scaling instead of 500,000 with LLaMA-3 scaling ×8.", False),
        ("Rotary base 10,000 instead of 500,000; 16 of each head are rotated.", False),
        ("Grouped-query attention with 32 heads instead of multi-head attention with 12 heads.", False),
        ("Each layer's feed-forward is replaced by 8 experts, of which a token uses 2.", False),
        ("RMSNorm instead of LayerNorm.", False),
    ],
)
def test_a_sentence_of_sizes_tells_of_another_number_alone(sentence, of_sizes):
    assert is_of_sizes(sentence) == of_sizes
