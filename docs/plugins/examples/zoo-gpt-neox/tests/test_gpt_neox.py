"""What gpt-neox must hold."""

import pytest
import zoo_gpt_neox

from zoo.architecture import Config
from zoo.testing import check_architecture


@pytest.mark.parametrize("preset", ["tiny", "sequential"])
def test_conforms(zoo_registry, preset):
    """Both kinds of layer hold the zoo's suite."""
    check_architecture("gpt-neox", preset, registry=zoo_registry(zoo_gpt_neox))


def test_a_quarter_of_each_head_turns_unless_the_config_says_otherwise():
    """`rotary_pct` and `rotary_emb_base`, or transformers 5's object, which wins."""
    plain = {key: value for key, value in zoo_gpt_neox.TINY.items() if key != "rotary_pct"}
    nested = dict(rope_parameters=dict(partial_rotary_factor=0.75, rope_theta=500.0))
    for more, dims, theta in (({}, 4, 10000.0), (dict(rotary_emb_base=20.0), 4, 20.0), (nested, 12, 500.0)):
        rope = zoo_gpt_neox.gpt_neox(Config(plain | more)).layers[0].mixer.rope
        assert (rope.dims, rope.theta) == (dims, theta)
