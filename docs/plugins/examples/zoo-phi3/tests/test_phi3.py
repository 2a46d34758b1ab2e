"""What phi3 must hold."""

import math

import pytest
import zoo_phi3

from zoo.architecture import Config
from zoo.errors import ZooError
from zoo.testing import check_architecture, same, subject


@pytest.mark.parametrize("preset", ["tiny", "long"])
def test_conforms(zoo_registry, preset):
    """The zoo's suite, with a window, and with LongRoPE."""
    check_architecture("phi3", preset, known=zoo_registry(zoo_phi3))


def test_longrope_scales_queries_and_keys_by_how_much_longer_texts_have_become():
    """√(1 + ln 2 / ln 32): 64 positions are twice the 32 that it was first trained for."""
    scaling = zoo_phi3.phi3(Config(zoo_phi3.LONG)).layers[0].mixer.rope.scaling
    assert scaling.magnitude == pytest.approx(math.sqrt(1 + math.log(2) / math.log(32)))
    assert (scaling.context, scaling.long) == (32, (1.0, 2.0, 4.0, 8.0))


def test_factors_are_as_many_as_pairs_of_dimensions(zoo_registry):
    """An error names the list, where it stands and how many there must be."""
    known = zoo_registry(zoo_phi3)
    zoo_phi3.LONG["rope_scaling"]["long_factor"].append(9.0)
    try:
        with pytest.raises(ZooError, match=r"rope\.scaling: long: 5 factors for 4 pairs"):
            subject("phi3", "long", known=known)
    finally:
        zoo_phi3.LONG["rope_scaling"]["long_factor"].pop()


def test_a_text_beyond_the_context_turns_by_the_long_factors(zoo_registry):
    """All of it: a prompt of 40 tokens and what follows are what the whole text is."""
    import mlx.core as mx

    made = subject("phi3", "long", known=zoo_registry(zoo_phi3))
    tokens = mx.random.randint(0, 128, (1, 44), key=mx.random.key(3))
    cache = made.model.make_cache()
    pieces = [
        made.model(tokens[:, :40], cache),
        *(made.model(tokens[:, i : i + 1], cache) for i in range(40, 44)),
    ]
    same(mx.concatenate(pieces, axis=1), made.model(tokens), "logits")
    with pytest.raises(AssertionError, match="logits"):
        same(made.model(tokens[:, :30]), made.model(tokens)[:, :30], "logits")
