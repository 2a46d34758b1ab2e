"""The text model of a checkpoint with images: its config, its tensors' names, its folder."""

import json

import mlx.core as mx
import pytest

import zoo
from zoo.checkpoint.convert import convert
from zoo.checkpoint.safetensors import Tensors
from zoo.checkpoint.text_part import text_config, text_name, text_tensors
from zoo.errors import ZooError
from zoo.host.registry import default_registry

TEXT = {"model_type": "qwen3_5_text", "hidden_size": 64, "tie_word_embeddings": None}
WHOLE = {
    "model_type": "qwen3_5",
    "text_config": TEXT,
    "vision_config": {"depth": 1},
    "image_token_id": 7,
    "tie_word_embeddings": True,
}


def test_the_text_config_counts_and_what_is_beside_it_about_the_whole():
    config = text_config(
        WHOLE | {"quantization": {"bits": 4, "language_model.model.norm": False}}, default_registry()
    )
    quantization = {"bits": 4, "model.norm": False}
    assert config == TEXT | {"tie_word_embeddings": True, "quantization": quantization}


@pytest.mark.parametrize(
    "config",
    [{"model_type": "llama", "text_config": TEXT}, {"model_type": "qwen3_5_text", "hidden_size": 8}, {}],
)
def test_other_configs_stay_as_they_are(config):
    assert text_config(config, default_registry()) is config


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("model.language_model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight"),
        ("language_model.model.norm.weight", "model.norm.weight"),
        ("language_model.lm_head.weight", "lm_head.weight"),
        ("lm_head.weight", "lm_head.weight"),
        ("mtp.norm.weight", "mtp.norm.weight"),
    ],
)
def test_names_are_those_of_a_text_model(name, text):
    assert text_name(name) == text


def test_encoders_of_images_are_left_out_by_name_and_nothing_else_is():
    names = ("model.visual.blocks.0.weight", "vision_tower.patch.weight", "model.other.weight")
    arrays = {name: mx.zeros((1,)) for name in names}
    assert list(text_tensors(Tensors(arrays, dict.fromkeys(names, "F32"), {})).arrays) == [
        "model.other.weight"
    ]


def with_images(folder, **tensors):
    """A folder of Qwen3.5 with an encoder of images, from the text model's."""
    convert(write_text(folder / "text"), folder / "hf", layout="hf")
    config = json.loads((folder / "hf" / "config.json").read_text())
    (folder / "hf" / "config.json").write_text(json.dumps(WHOLE | {"text_config": config}))
    weights = mx.load(str(folder / "hf" / "model.safetensors"))
    named = {name.replace("model.", "model.language_model.", 1): array for name, array in weights.items()}
    extra = {"model.visual.patch.weight": mx.zeros((2, 2))} | tensors
    mx.save_safetensors(str(folder / "hf" / "model.safetensors"), named | extra, {"format": "pt"})
    return folder / "hf"


def write_text(folder):
    """The folder of a random text model."""
    from zoo.assemble import assemble
    from zoo.checkpoint.convert import save
    from zoo.config import Config

    registry = default_registry()
    architecture = registry.architecture("qwen3.5")
    numbers = architecture.preset("tiny").config
    recipe = architecture.recipe_of(Config(numbers))
    save(folder, assemble(recipe, registry), architecture, recipe, numbers)
    return folder


def test_a_folder_with_images_gives_the_text_models_logits(tmp_path):
    whole = with_images(tmp_path)
    tokens = mx.array([[1, 2, 3]])
    found, expected = zoo.load(whole), zoo.load(tmp_path / "text")
    assert found.architecture.name == "qwen3.5"
    assert mx.array_equal(found.model(tokens), expected.model(tokens))


def test_a_tensor_of_no_part_is_named(tmp_path):
    with pytest.raises(ZooError, match=r"model\.other\.weight"):
        zoo.load(with_images(tmp_path, **{"model.other.weight": mx.zeros((2, 2))}))


def test_mlx_lm_finds_the_config_and_the_tensors_where_it_looks_for_them(tmp_path):
    convert(write_text(tmp_path / "text"), tmp_path / "mlx")
    config = json.loads((tmp_path / "mlx" / "config.json").read_text())
    assert config["model_type"] == "qwen3_5" and config["text_config"]["model_type"] == "qwen3_5_text"
    assert config["text_config"]["rope_parameters"]["partial_rotary_factor"] == 0.5
    names = mx.load(str(tmp_path / "mlx" / "model.safetensors"))
    assert all(name.startswith("language_model.model.") for name in names)
