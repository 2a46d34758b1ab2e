"""`config.json` values: types, bounds, defaults, the two spellings of rotary positions."""

import math

import pytest

from zoo.config import Config
from zoo.errors import ConfigError
from zoo.recipe import DynamicScaling, LinearScaling, Llama3Scaling, RoPE, YarnScaling


def test_null_means_absent():
    config = Config({"a": None, "b": 3})
    assert "a" not in config and config.get("a", 5) == 5 and config.count("a", 7) == 7
    assert config.is_null("a") and not config.is_null("c")


def test_a_required_key_is_named():
    with pytest.raises(ConfigError, match=r"config\.json: width is missing"):
        Config({}).count("width")


@pytest.mark.parametrize("value", ["8", True, 8.5, -1, 0, 10**9, [8], math.inf])
def test_a_count_is_a_whole_number_within_bounds(value):
    with pytest.raises(ConfigError, match="width"):
        Config({"width": value}).count("width")


def test_a_long_value_is_shortened_in_its_error():
    with pytest.raises(ConfigError) as caught:
        Config({"width": "x" * 10_000}).count("width")
    assert len(str(caught.value)) < 200


def test_unread_keys_are_told_but_for_harmless_ones():
    config = Config({"width": 3, "use_cache": True, "mystery": 1, "torch_dtype": "float16"})
    config.count("width")
    assert config.unread() == ["mystery"]


@pytest.mark.parametrize(
    ("value", "refused"), [(True, True), (False, False), (None, False), (0, False), (2, True)]
)
def test_refuse_any_value_that_says_yes(value, refused):
    config = Config({"flag": value})
    if refused:
        with pytest.raises(ConfigError, match="flag"):
            config.refuse("flag")
    else:
        config.refuse("flag")


def both(theta=None, **scaling):
    """The same rotary positions as transformers 4 and 5 spell them."""
    outer = {"max_position_embeddings": 64}
    old = outer | ({"rope_theta": theta} if theta else {}) | {"rope_scaling": scaling or None}
    new = outer | {
        "rope_parameters": ({"rope_theta": theta} if theta else {}) | (scaling or {"rope_type": "default"})
    }
    return Config(old), Config(new)


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        ({}, None),
        ({"rope_type": "linear", "factor": 4.0}, LinearScaling(4.0)),
        ({"type": "linear", "factor": 4}, LinearScaling(4.0)),
        ({"rope_type": "dynamic", "factor": 2.0}, DynamicScaling(2.0, 64)),
        (
            {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
            Llama3Scaling(8.0, 1.0, 4.0, 64),
        ),
        (
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
            YarnScaling(4.0, 16, magnitude=0.1 * math.log(4) + 1),
        ),
        (
            {"rope_type": "yarn", "original_max_position_embeddings": 16, "attention_factor": 1.5},
            YarnScaling(4.0, 16, magnitude=1.5),
        ),
    ],
)
def test_both_spellings_say_the_same(scaling, expected):
    for config in both(500.0, **scaling):
        assert RoPE.of(config) == RoPE(theta=500.0, scaling=expected)
        assert set(config.unread()) <= {"max_position_embeddings"}


def test_part_of_a_head_may_be_turned():
    assert RoPE.of(Config({"partial_rotary_factor": 0.5}), 8).dims == 4
    with pytest.raises(ConfigError, match="partial_rotary_factor"):
        RoPE.of(Config({"partial_rotary_factor": 0.4}), 8)
