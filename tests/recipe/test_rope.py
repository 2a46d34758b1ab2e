"""Rotary positions: any keys, kinds of a plugin's own, explicit positions, and texts that outgrow their angles."""

import json
from dataclasses import dataclass
from types import SimpleNamespace

import mlx.core as mx
import pytest

import zoo
from zoo.architecture import Block, hookimpl
from zoo.assemble import assemble, build
from zoo.blocks.position import Scaling, token_positions
from zoo.checkpoint.convert import complete_config, convert
from zoo.config import Config
from zoo.errors import ConfigError, RecipeError
from zoo.host.registry import default_registry, isolated
from zoo.recipe import DynamicScaling, LinearScaling, RoPE, Spec
from zoo.testing import randomise, same
from zoo_llama import TINY, llama

KEYS = dict(theta_key="base", partial_key="pct", scaling_key="stretch", context_key="n_positions")


def test_the_keys_have_whatever_names_a_family_gives_them():
    config = Config(dict(base=500.0, pct=0.5, stretch=dict(type="dynamic", factor=2.0), n_positions=64))
    assert RoPE.of(config, 16, **KEYS) == RoPE(theta=500.0, dims=8, scaling=DynamicScaling(2.0, 64))
    assert not config.unread()


def test_what_transformers_5_nests_wins_and_is_told_by_the_familys_own_names():
    nested = dict(rope_theta=300.0, partial_rotary_factor=0.25, rope_type="default")
    config = Config(dict(rope_parameters=nested)).with_defaults(pct=0.5)
    assert RoPE.of(config, 16, **KEYS) == RoPE(theta=300.0, dims=4)
    assert config.defaults() == {"base": 300.0, "pct": 0.25}
    assert not config.unread()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (dict(base=0.5), r"config\.json: base 0\.5 must be greater than 1"),
        (dict(base="many"), r"config\.json: base 'many' expected a number"),
        (dict(pct=1.5), r"config\.json: pct 1\.5 must lie in"),
        (dict(pct=0.2), r"config\.json: pct 0\.2 turns 3 dimensions"),
        (dict(rope_parameters=dict(partial_rotary_factor=0.2)), r"rope_parameters\.partial_rotary_factor 0\.2 turns"),
        (dict(rope_parameters=dict(rope_theta=1)), r"rope_parameters\.rope_theta 1 must be greater"),
        (dict(stretch=dict(type="odd")), r"stretch\.type 'odd' is not implemented; known: default, mrope, linear"),
        (dict(stretch=dict(type="linear", factor=2.0, spin=1)), r"stretch\.spin 1 is not implemented"),
    ],
)  # fmt: skip
def test_an_error_names_the_key_as_the_family_does(values, message):
    with pytest.raises(ConfigError, match=message):
        RoPE.of(Config(values), 16, **KEYS)


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        (dict(type="mrope", mrope_section=[2, 3, 3]), None),
        (dict(type="mrope", rope_type="default", mrope_section=[2, 3, 3]), None),
        (dict(rope_type="default", mrope_section=[2, 3, 3], mrope_interleaved=True), None),
        (dict(rope_type="linear", factor=2.0, mrope_section=[2, 3, 3]), LinearScaling(2.0)),
    ],
)
def test_positions_in_time_height_and_width_are_plain_ones_for_text(scaling, expected):
    for key in ("rope_scaling", "rope_parameters"):
        config = Config({key: scaling})
        assert RoPE.of(config, 16) == RoPE(scaling=expected)
        assert not config.unread()


BY_TYPE = dict(
    full_attention=dict(rope_type="linear", factor=4.0, rope_theta=1e6),
    sliding_attention=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5),
)


def test_positions_nested_by_layer_type_are_read_for_the_type_that_is_asked_for():
    config = Config(dict(rope_parameters=BY_TYPE, max_position_embeddings=64))
    assert RoPE.of(config, 16, layer_type="full_attention") == RoPE(theta=1e6, scaling=LinearScaling(4.0))
    assert RoPE.of(config, 16, layer_type="sliding_attention") == RoPE(theta=1e4, dims=8)
    assert "rope_theta" not in config.defaults() or config.defaults()["rope_theta"] == 10000.0
    flat = Config(dict(rope_parameters=dict(rope_theta=300.0)))
    assert RoPE.of(flat, 16, layer_type="full_attention") == RoPE(theta=300.0)
    # transformers 4 has flat keys, one for each type.
    keys = Config(dict(global_rope_theta=160000.0))
    assert RoPE.of(keys, 16, layer_type="full_attention", theta_key="global_rope_theta").theta == 160000.0


def test_a_converted_config_keeps_positions_nested_by_layer_type():
    checkpoint = SimpleNamespace(architecture=SimpleNamespace(bridged=False, model_types=(), mlx_type=None))
    config = dict(rope_parameters=BY_TYPE)
    opened = SimpleNamespace(checkpoint=checkpoint, config=config, defaults=dict(rope_theta=1e4))
    assert complete_config(opened) == dict(rope_parameters=BY_TYPE, rope_theta=1e4)


def test_an_error_in_positions_nested_by_layer_type_names_the_whole_key():
    with pytest.raises(ConfigError, match=r"rope_parameters .* has an object for each layer type"):
        RoPE.of(Config(dict(rope_parameters=BY_TYPE)), 16)
    wrong = dict(full_attention=dict(rope_theta=0.5))
    with pytest.raises(
        ConfigError, match=r"rope_parameters\.full_attention\.rope_theta 0\.5 must be greater"
    ):
        RoPE.of(Config(dict(rope_parameters=wrong)), 16, layer_type="full_attention")


@dataclass(frozen=True)
class Halved(Spec):
    """Every wavelength doubled, written as a plugin would."""

    kind, name = "rope-scaling", "test-halved"
    times: float = 2.0


class HalvedScaling(Scaling):
    def wavelengths(self, base):
        return mx.array([self.spec.times / f for f in base])


class HalvedPlugin:
    @hookimpl
    def zoo_blocks(self):
        yield Block(Halved, f"{__name__}:HalvedScaling")


def halved(scaling, config, positions):
    return Halved(times=scaling.number("times", positions / config.count("first_positions")))


def test_a_kind_of_scaling_is_a_plugins_own():
    config = Config(
        TINY | dict(rope_scaling=dict(rope_type="halved"), max_position_embeddings=128, first_positions=64)
    )
    recipe = llama(config, RoPE.of(config, kinds={"halved": halved}))
    assert recipe.layers[0].mixer.rope.scaling == Halved(2.0) and not config.unread()
    known, x = isolated(HalvedPlugin()), mx.random.normal((1, 2, 5, 16))
    found = build(recipe.layers[0].mixer.rope, 16, registry=known)(x, 3)
    same(found, build(RoPE(scaling=LinearScaling(2.0)), 16, registry=default_registry())(x, 3), "turned")
    with pytest.raises(
        ConfigError, match="'halved' is not implemented; known: default, mrope, linear, dynamic"
    ):
        llama(config)


ROPES = [
    RoPE(theta=100.0),
    RoPE(theta=100.0, dims=6),
    RoPE(theta=100.0, interleaved=True, dims=4),
    RoPE(theta=100.0, scaling=LinearScaling(3.0)),
    RoPE(theta=100.0, scaling=DynamicScaling(2.0, 8)),
]


@pytest.mark.parametrize("spec", ROPES, ids=str)
def test_explicit_positions_are_those_that_an_offset_counts(spec):
    rope, x = build(spec, 8, registry=default_registry()), mx.random.normal((2, 3, 5, 8))
    for offset in (0, 7, mx.array([4, -2])):
        told = mx.broadcast_to(token_positions(5, offset), (2, 5))
        padding = (told < 0)[:, None, :, None]  # which is masked: GPUs count its positions from 2³² down
        found, expected = (mx.where(padding, 0, rope(x, positions)) for positions in (told, offset))
        same(found, expected, "turned")


@pytest.mark.parametrize("spec", ROPES[:4], ids=str)
def test_each_token_turns_by_the_position_it_is_given(spec):
    rope, x = build(spec, 8, registry=default_registry()), mx.random.normal((1, 3, 5, 8))
    order = mx.array([[9, 0, 3, 3, 40]])
    each = [rope(x[:, :, i : i + 1], int(order[0, i])) for i in range(5)]
    same(rope(x, order), mx.concatenate(each, axis=2), "turned")


def test_positions_of_rows():
    assert token_positions(3).tolist() == [0, 1, 2] and token_positions(2, 5).tolist() == [5, 6]
    assert token_positions(2, mx.array([4, -1])).tolist() == [[4, 5], [-1, 0]]
    assert token_positions(2, mx.array([[7, 3]])).tolist() == [[7, 3]]


def dynamic(layers=1, window=None):
    """A model whose angles change once a text has more than 16 tokens."""
    scaling = dict(rope_type="dynamic", factor=4.0)
    numbers = TINY | dict(max_position_embeddings=16, rope_scaling=scaling, num_hidden_layers=layers)
    recipe = llama(Config(numbers)).change_layers(mixer=dict(window=window))
    model = assemble(recipe, default_registry())
    randomise(model)
    return model


@pytest.mark.parametrize("window", [None, 7])
def test_keys_that_are_kept_turn_with_a_text_that_grows(window):
    model = dynamic(window=window)  # of one layer: what it keeps depends on no angle
    tokens, cache = mx.random.randint(0, 256, (2, 30)), None
    cache = model.make_cache()
    model(tokens[:, :10], cache)
    for end in range(11, 31):
        found = model(tokens[:, end - 1 : end], cache)[:, -1]
        same(found, model(tokens[:, :end])[:, -1], f"logits of token {end}")


def test_a_padded_row_turns_by_its_own_length():
    model = dynamic(layers=2)
    tokens = mx.random.randint(0, 256, (2, 30))
    mask = mx.array([[1] * 30, [0] * 18 + [1] * 12])
    for cache in (None, model.make_cache()):
        batch = model(tokens, cache, mask=mask)
        for row, start in ((0, 0), (1, 18)):
            alone = model(tokens[row : row + 1, start:])
            same(
                batch[row : row + 1, start:], alone, f"row {row}, {'uncached' if cache is None else 'cached'}"
            )


@pytest.mark.parametrize("beside", [{}, dict(rope_theta=20.0, partial_rotary_factor=1.0)])
def test_converting_keeps_the_share_of_a_head_that_turns(folder, tmp_path, beside):
    changes = beside | dict(
        rope_parameters=dict(rope_theta=500.0, partial_rotary_factor=0.5, rope_type="default")
    )
    source = folder(changes=changes)
    convert(source, tmp_path / "out")
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (written["partial_rotary_factor"], written["rope_theta"]) == (0.5, 500.0)
    assert zoo.load(tmp_path / "out").recipe == zoo.load(source).recipe


def test_the_familys_own_names_are_noted_even_where_they_stand_with_another_value():
    nested = dict(rope_theta=300.0, partial_rotary_factor=0.5, rope_type="default")
    config = Config(dict(base=20.0, rope_parameters=nested))
    RoPE.of(config, 16, **KEYS)
    assert config.defaults() == {"base": 300.0, "pct": 0.5}


def test_dynamic_scaling_of_two_dimensions_is_refused():
    with pytest.raises(RecipeError, match=r"scaling.factor: dynamic scaling needs at least four"):
        build(RoPE(dims=2, scaling=DynamicScaling(2.0, 8)), 8, registry=default_registry())
