"""The recipes of Mixtral and the Qwen mixtures of experts: what config.json says is honoured or refused by name."""

import pytest

from zoo.config import Config
from zoo.errors import CheckpointError
from zoo.host.registry import default_registry
from zoo.loading import load
from zoo.testing import subject


def recipe(name, **changes):
    architecture = default_registry().architecture(name)
    return architecture.recipe(Config(architecture.full_size.config | changes))


def kinds(made):
    return [layer.feedforward.name for layer in made.layers]


@pytest.mark.parametrize("name", ["mixtral", "qwen3-moe"])
def test_pockets_have_a_million_active_parameters_and_fit_in_six_megabytes(name):
    architecture = default_registry().architecture(name)
    made = architecture.recipe(Config(architecture.preset("pocket").config))
    assert made.parameters(made.dim) * 2 < 6e6
    assert 0.9e6 < made.active_parameters(made.dim) < 1.2e6


def test_defaults_are_those_of_transformers():
    few = {key: value for key, value in default_registry().architecture("mixtral").full_size.config.items()}
    for key in (
        "num_local_experts",
        "num_experts_per_tok",
        "rope_theta",
        "rms_norm_eps",
        "num_key_value_heads",
    ):
        del few[key]
    layer = default_registry().architecture("mixtral").recipe(Config(few)).layers[0]
    assert (layer.feedforward.router.experts, layer.feedforward.router.top_k) == (8, 2)
    assert (layer.mixer.rope.theta, layer.mixer_norm.eps, layer.mixer.kv_heads) == (1e6, 1e-5, 8)


def test_decoder_sparse_step_counts_from_the_first_layer_as_one():
    made = recipe("qwen3-moe", num_hidden_layers=6, decoder_sparse_step=3)
    assert kinds(made) == ["gated-mlp", "gated-mlp", "moe"] * 2


def test_mlp_only_layers_have_one_feedforward_of_the_full_width():
    made = recipe("qwen2-moe", num_hidden_layers=3, mlp_only_layers=[0, 2])
    assert kinds(made) == ["gated-mlp", "moe", "gated-mlp"]
    assert made.layers[0].feedforward.hidden == 5632
    assert made.layers[1].feedforward.experts.hidden == 1408


@pytest.mark.parametrize("name", ["qwen2-moe", "qwen3-moe"])
def test_no_experts_is_a_dense_model(name):
    assert set(kinds(recipe(name, num_experts=0))) == {"gated-mlp"}


def test_qwen2_moe_windows_alternate_below_max_window_layers():
    made = recipe(
        "qwen2-moe", num_hidden_layers=6, use_sliding_window=True, sliding_window=8, max_window_layers=3
    )
    assert [layer.mixer.window for layer in made.layers] == [8, None, 8, None, None, None]


def test_qwen3_moe_has_its_window_everywhere_or_nowhere():
    assert {layer.mixer.window for layer in recipe("qwen3-moe", sliding_window=8).layers} == {None}
    made = recipe("qwen3-moe", use_sliding_window=True, sliding_window=8, max_window_layers=40)
    assert {layer.mixer.window for layer in made.layers} == {8}


def test_a_missing_expert_is_named(tmp_path):
    import mlx.core as mx

    from zoo.checkpoint.convert import save

    made = subject("qwen3-moe")
    save(tmp_path, made.model, made.architecture, made.recipe, made.numbers)
    path = str(tmp_path / "model.safetensors")
    tensors = dict(mx.load(path))
    del tensors["model.layers.1.mlp.experts.4.up_proj.weight"]
    mx.save_safetensors(path, tensors)
    with pytest.raises(
        CheckpointError, match=r"layers\.1\.mlp\.experts\.0\.up_proj\.weight.*expert 4 is missing"
    ):
        load(tmp_path)
    for number in range(3, 6):
        tensors.pop(f"model.layers.1.mlp.experts.{number}.up_proj.weight", None)
    mx.save_safetensors(path, tensors)
    with pytest.raises(
        CheckpointError, match=r"experts\.0\.up_proj.*expected shape \(6, 32, 64\), found \(3, 32, 64\)"
    ):
        load(tmp_path)
