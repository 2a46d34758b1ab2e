"""Phi-3's LongRoPE."""

import math

import mlx.core as mx
import pytest

from zoo import recipe
from zoo.config import Config
from zoo.errors import RecipeError
from zoo.testing import same, subject
from zoo_phi3 import LONG, phi3


def test_longrope_scales_queries_and_keys_by_how_much_longer_texts_have_become():
    """√(1 + ln 4 / ln 512): 2048 positions are four times the 512 that it was first trained for."""
    scaling = phi3(Config(LONG)).layers[0].mixer.rope.scaling
    assert scaling.magnitude == pytest.approx(math.sqrt(1 + math.log(4) / math.log(512)))
    assert (scaling.context, scaling.long) == (512, (1.0, 1.0, *[8.0] * 6))


def test_factors_are_as_many_as_pairs_of_dimensions():
    """An error names the list and how many there must be."""
    spec = recipe.LongScaling(short=(1.0,) * 8, long=(1.0,) * 9, context=32)
    with pytest.raises(RecipeError, match="long: 9 factors for 8 pairs"):
        spec.check_width(16)


def test_a_text_beyond_the_context_turns_by_the_long_factors():
    """All of it: a prompt of 520 tokens and what follows are what the whole text is."""
    made = subject("phi3", "long")
    tokens = mx.random.randint(0, 256, (1, 524), key=mx.random.key(3))
    cache = made.model.make_cache()
    pieces = [
        made.model(tokens[:, :520], cache),
        *(made.model(tokens[:, i : i + 1], cache) for i in range(520, 524)),
    ]
    same(mx.concatenate(pieces, axis=1), made.model(tokens), "logits")
    with pytest.raises(AssertionError, match="logits"):
        same(made.model(tokens[:, :500]), made.model(tokens)[:, :500], "logits")
