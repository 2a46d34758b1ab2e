"""What a block cannot run is refused where the recipe is made or the model is built, by the field's path."""

import pytest

from zoo.assemble import build
from zoo.errors import RecipeError
from zoo.host.registry import default_registry
from zoo.recipe import (
    MLP,
    Attention,
    Decoder,
    Embedding,
    Encoder,
    Head,
    Layer,
    LinearScaling,
    RMSNorm,
    RoPE,
    SinusoidalPositions,
    YarnScaling,
)
from zoo_gpt_oss import ClippedExperts
from zoo_rnn import LSTM

NORM = RMSNorm()
LAYER = Layer(Attention(4), MLP(16), NORM, NORM)
WINDOWED = LAYER.change(mixer=dict(window=8))
TABLE = Embedding(vocab=32, dim=16)


@pytest.mark.parametrize(
    "make, problem",
    [
        (lambda: Attention(4, scale=0.0), "scale: must be positive"),
        (lambda: Attention(4, kv_heads=3), "kv_heads: 3 does not divide heads"),
        (lambda: RoPE(dims=3), "dims: 3 is odd"),
        (lambda: LinearScaling(0.0), "factor: must be at least 1"),
        (lambda: YarnScaling(factor=-2.0, context=8), "factor: must be at least 1"),
        (lambda: Decoder(TABLE, (LAYER,), NORM, Head(), causality="casual"), "causality: 'casual' is not"),
        (
            lambda: Decoder(TABLE, (LAYER, WINDOWED), NORM, Head(), causality="full"),
            r"layers\.1\.mixer\.window",
        ),
        (
            lambda: Decoder(TABLE, (LAYER,), NORM, Head(tied=True, vocab=31)),
            "head.vocab: 31 is not the embedding's",
        ),
        (lambda: Encoder(TABLE, (LAYER.change(mixer=LSTM()),)), r"layers\.0\.mixer: mixer/lstm is recurrent"),
        (lambda: Encoder(TABLE.change(shared=True), (LAYER,)), "embedding.shared: only a decoder's"),
        (lambda: ClippedExperts(count=2, hidden=8, limit=0.0), "limit: must be positive"),
    ],
)
def test_a_recipe_that_no_block_can_run_is_not_made(make, problem):
    with pytest.raises(RecipeError, match=problem):
        make()


@pytest.mark.parametrize(
    "changes, problem",
    [
        (dict(mixer=Attention(5)), r"layers\.0\.mixer\.heads: 5 does not divide the width, 16"),
        (
            dict(mixer=Attention(4, rope=RoPE(dims=6))),
            r"layers\.0\.mixer\.rope\.dims: 6 of a head that has only 4",
        ),
        (dict(mixer=Attention(4, head_dim=3, rope=RoPE())), r"layers\.0\.mixer\.rope\.dims: 3 is odd"),
    ],
)
def test_widths_that_do_not_divide_are_refused_by_path(changes, problem):
    with pytest.raises(RecipeError, match=problem):
        Decoder(TABLE, (LAYER.change(**changes),), NORM, Head())


def test_a_part_by_itself_is_refused_when_it_is_built():
    with pytest.raises(RecipeError, match=r"position/rope\.dims: 6 of a head that has only 4"):
        build(RoPE(dims=6), 4, registry=default_registry())


def test_sinusoids_that_end_at_a_frequency_need_two_of_them():
    positions = SinusoidalPositions(inclusive=True)
    with pytest.raises(RecipeError, match="inclusive: needs more than two features"):
        build(positions, 2, registry=default_registry())
    assert build(positions, 3, registry=default_registry())(4).shape == (4, 3)
