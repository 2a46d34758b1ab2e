"""Specs: what they refuse, how they change, what they count."""

from dataclasses import dataclass

import pytest

from zoo.errors import RecipeError
from zoo.recipe import (
    MLP,
    Attention,
    Decoder,
    Embedding,
    Encoder,
    EncoderDecoder,
    GatedMLP,
    Head,
    Layer,
    LayerNorm,
    Llama3Scaling,
    RMSNorm,
    RoPE,
    Spec,
    repeat,
)


def decoder(**changes):
    norm = RMSNorm()
    layer = Layer(
        mixer=Attention(heads=4, kv_heads=2, rope=RoPE()),
        feedforward=GatedMLP(hidden=24),
        mixer_norm=norm,
        feedforward_norm=norm,
    )
    settings = (
        dict(embedding=Embedding(vocab=50, dim=16), layers=repeat(layer, 3), norm=norm, head=Head()) | changes
    )
    return Decoder(**settings)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Attention(heads=0), "heads"),
        (lambda: Attention(heads=4, kv_heads=3), "kv_heads"),
        (lambda: Attention(heads=True), "heads"),
        (lambda: Attention(heads=2.0), "heads"),
        (lambda: Attention(heads=4, rope="rope"), "rope"),
        (lambda: Attention(heads=5).head_width(16), "heads"),
        (lambda: MLP(hidden=8, activation="gelu_10"), "activation"),
        (lambda: RMSNorm(eps="small"), "eps"),
        (lambda: RMSNorm(eps=float("nan")), "eps"),
        (lambda: RoPE(theta=0.0), "theta"),
        (lambda: Llama3Scaling(factor=8.0, low=4.0, high=3.0, context=10), "high"),
        (lambda: Embedding(vocab=2**40, dim=4), "vocab"),
        (
            lambda: decoder().change_layers(mixer=dict(heads=2**10, head_dim=2**24)),
            "layers.0.mixer.query: a side of 17179869184, more than the 2147483647 of an array",
        ),
        (lambda: decoder(layers=()), "layers"),
        (lambda: decoder(head=None), "head"),
        (lambda: decoder().change(width=3), "width"),
        (lambda: decoder().change_layers(placement="middle"), "placement"),
    ],
)
def test_a_value_that_cannot_be_names_its_field(make, field):
    with pytest.raises(RecipeError, match=field):
        make()


def test_parts_have_the_paths_of_parameters():
    paths = dict(decoder().walk())
    assert isinstance(paths["layers.2.mixer"], Attention)
    assert isinstance(paths["layers.0.mixer.rope"], RoPE)
    assert paths["norm"] == RMSNorm()


def test_layers_change_by_value_or_by_number():
    windowed = decoder().change_layers(mixer=dict(window=8))
    assert [layer.mixer.window for layer in windowed.layers] == [8, 8, 8]
    assert windowed.layers[0].mixer.heads == 4
    alternating = decoder().change_layers(lambda index, layer: dict(mixer=dict(window=index or None)))
    assert [layer.mixer.window for layer in alternating.layers] == [None, 1, 2]


def test_parameters_are_counted_by_hand():
    attention = Attention(heads=4, kv_heads=2, head_dim=5, bias=True)
    assert attention.parameters(16) == 16 * (20 + 10 + 10) + 20 * 16 + (20 + 10 + 10)
    assert attention.kv_cache_size(16) == 2 * 2 * 5
    assert MLP(hidden=32).parameters(8) == 8 * 32 + 32 + 32 * 8 + 8
    assert GatedMLP(hidden=32).parameters(8) == 3 * 8 * 32
    assert LayerNorm().parameters(8) == 16
    assert LayerNorm(bias=False).parameters(8) == 8
    layer = 16 * (16 + 8 + 8) + 16 * 16 + 3 * 16 * 24 + 2 * 16
    assert decoder().parameters(16) == 50 * 16 + 3 * layer + 16 + 50 * 16
    assert decoder(head=Head(tied=True)).parameters(16) == 50 * 16 + 3 * layer + 16


def test_a_published_count():
    from zoo.describe import describe
    from zoo.host.registry import default_registry

    for name, parameters in (("gpt2", 124_439_808), ("qwen3", 596_049_920), ("llama:8b", 8_030_261_248)):
        recipe = describe(name, default_registry()).recipe
        assert recipe.parameters(recipe.dim) == parameters


def test_a_state_of_the_own_size_is_counted_in_every_layer():
    @dataclass(frozen=True)
    class Stateful(Spec):
        kind, name, recurrent = "mixer", "stateful", True

        def state_size(self, dim):
            return super().state_size(dim) + 3 * dim

    layer = Layer(Stateful(), GatedMLP(hidden=24), RMSNorm(), RMSNorm())
    assert decoder(layers=repeat(layer, 2)).state_size(16) == 2 * 3 * 16


def test_another_vocabulary_changes_the_head_too():
    for head in (Head(), Head(tied=True)):
        model = decoder(head=head).with_vocab(70)
        assert (model.embedding.vocab, model.head.vocab, model.head.tied) == (70, 70, head.tied)
    encoder = Encoder(Embedding(50, 16), decoder().layers, head=Head())
    assert encoder.with_vocab(70).head.vocab == encoder.with_vocab(70).embedding.vocab == 70
    assert encoder.change(head=None).with_vocab(70).embedding.vocab == 70
    both = EncoderDecoder(encoder.change(head=None), decoder(), start=49).with_vocab(70)
    assert both.encoder.embedding.vocab == both.decoder.embedding.vocab == both.head.vocab == 70
    with pytest.raises(RecipeError, match="start: 49 lies outside"):
        both.with_vocab(49)
