"""Recipes of current decoders: what their config.json says is honoured or refused by name."""

import pytest

from zoo.config import Config
from zoo.host.registry import default_registry

WINDOWS = ["full_attention", "sliding_attention"]


def recipe(name, preset=None, **changes):
    """The recipe of a preset's numbers, without one of the first published's, some of them changed."""
    architecture = default_registry().architecture(name)
    found = architecture.preset(preset) if preset else architecture.full_size
    return architecture.recipe_of(Config({**found.config, **changes}))


def windows(name, **changes):
    return [layer.mixer.window for layer in recipe(name, "tiny", **changes).layers]


def test_olmos_norms_stand_after_each_part_and_over_all_heads():
    layer = recipe("olmo2", "32b").layers[0]
    assert layer.block() == "layer/output-norm"
    norms = layer.mixer.query_norm, layer.mixer.key_norm
    assert [(norm.block(), norm.heads) for norm in norms] == [
        ("norm/joint-rmsnorm", 40),
        ("norm/joint-rmsnorm", 8),
    ]


def test_olmo3_scales_positions_where_there_is_no_window():
    layers = recipe("olmo3").layers
    found = {(layer.mixer.window, layer.mixer.rope.scaling is None) for layer in layers}
    assert found == {(4096, True), (None, False)}
    assert [index for index, layer in enumerate(layers) if not layer.mixer.window] == [*range(3, 32, 4)]


def test_gemma3_has_two_bases_and_one_layer_in_six_without_a_window():
    layers = recipe("gemma3").layers
    found = {(layer.mixer.window, layer.mixer.rope.theta) for layer in layers}
    assert found == {(512, 1e4), (None, 1e6)}
    assert [index for index, layer in enumerate(layers) if not layer.mixer.window] == [5, 11, 17, 23]
    assert layers[0].mixer.block() == "mixer/attention" and recipe("gemma3").head.block() == "head/logits"


def test_gemma3_scales_the_positions_of_layers_without_a_window():
    scaled = recipe("gemma3", rope_scaling=dict(rope_type="linear", factor=8.0))
    factors = [layer.mixer.rope.scaling and layer.mixer.rope.scaling.factor for layer in scaled.layers[4:6]]
    assert factors == [None, 8.0]


def test_glm_rotates_half_of_each_head():
    rope, other = recipe("glm4").layers[0].mixer.rope, recipe("glm4-moe").layers[0].mixer.rope
    assert (rope.dims, rope.interleaved, other.dims, other.interleaved) == (64, True, 64, False)


def test_glm4_moe_begins_with_dense_layers():
    kinds = [layer.feedforward.block() for layer in recipe("glm4-moe").layers]
    assert kinds == ["feedforward/gated-mlp"] * 3 + ["feedforward/moe"] * 89
    router = recipe("glm4-moe").layers[3].feedforward.router
    assert (router.block(), router.scale) == ("router/sigmoid", 2.5)


def test_minimax_turns_as_many_dimensions_as_its_config_says():
    spellings = dict(rotary_dim=32), dict(rotary_dim=None, partial_rotary_factor=0.25)
    assert [recipe("minimax-m2", **one).layers[0].mixer.rope.dims for one in spellings] == [32, 32]


def test_granites_four_numbers_stand_in_the_recipe():
    made = recipe("granite")
    layer = made.layers[0]
    assert (made.embedding.scale, made.head.scale) == (12.0, 1 / 16)  # logits are divided by theirs
    assert (layer.mixer.scale, layer.residual_scale) == (1 / 128, 0.22)


@pytest.mark.parametrize(
    ("changes", "bare"),
    [({}, [1]), (dict(no_rope_layers=[0, 1, 0]), [0, 2]), (dict(no_rope_layer_interval=3), [2])],
)
def test_smollm3_has_layers_without_positions(changes, bare):
    layers = recipe("smollm3", "tiny", **changes).layers
    assert [index for index, layer in enumerate(layers) if layer.mixer.rope is None] == bare


def test_smollm3s_windows_are_used_when_it_says_so():
    assert windows("smollm3", sliding_window=6) == [None] * 3
    assert windows("smollm3", sliding_window=6, use_sliding_window=True) == [None, 6, None]


def test_command_r_has_one_norm_for_both_parts():
    layer = recipe("cohere").layers[0]
    assert layer.parallel and layer.feedforward_norm is None and not layer.mixer_norm.bias


def test_cohere2_has_positions_only_where_there_is_a_window():
    layers = recipe("cohere2").layers
    assert {(layer.mixer.rope is None, layer.mixer.window) for layer in layers} == {
        (True, None),
        (False, 4096),
    }


def test_hunyuans_base_is_stretched_by_a_constant():
    rope = recipe("hunyuan-dense").layers[0].mixer.rope
    assert rope.theta == pytest.approx(1e4 * 1000 ** (128 / 126)) and rope.scaling is None


def test_starcoder2_has_biases_everywhere():
    layer = recipe("starcoder2").layers[0]
    assert layer.mixer.bias and layer.mixer.output_bias and layer.feedforward.bias and layer.mixer_norm.bias
    plain = recipe("starcoder2", use_bias=False).layers[0]
    assert not (plain.mixer.bias or plain.mixer.output_bias or plain.feedforward.bias)


@pytest.mark.parametrize("name", ["olmo3", "gemma3", "cohere2"])
def test_layer_types_say_which_layers_have_a_window(name):
    types = WINDOWS * 2 if name == "olmo3" else [*WINDOWS, "full_attention"]
    assert windows(name, layer_types=types) == [6 if kind != "full_attention" else None for kind in types]
