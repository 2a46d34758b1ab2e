"""Checkpoints that transformers writes of models of images and text: the zoo runs their text model."""

import pytest
import torch
import transformers as tf
from safetensors.torch import load_file, save_file

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)

from zoo.checkpoint.convert import convert

from .families import FAMILIES
from .family import edit
from .support import agrees, reference, texts

QWEN = dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, out_hidden_size=32, patch_size=2)
SIGLIP = dict(
    hidden_size=16,
    intermediate_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    image_size=8,
    patch_size=4,
)

# transformers' classes of the whole, the `model_type` of its text, and its encoder of images.
COMPOSITES = {
    "qwen3.5": ("Qwen3_5", "qwen3_5_text", QWEN),
    "qwen3.5-moe": ("Qwen3_5Moe", "qwen3_5_moe_text", QWEN),
    "qwen3": ("Qwen3VL", "qwen3_vl_text", QWEN | dict(deepstack_visual_indexes=[0])),
    "gemma3": ("Gemma3", "gemma3_text", SIGLIP),
    "ministral3": ("Mistral3", "ministral3", SIGLIP | dict(model_type="pixtral", head_dim=8)),
    "mistral4": ("Mistral3", "mistral4", SIGLIP | dict(model_type="pixtral", head_dim=8)),
    "llama4": (
        "Llama4",
        "llama4_text",
        SIGLIP | dict(vision_output_dim=16, projector_input_dim=16, projector_output_dim=16),
    ),
    "mistral": ("Mistral3", "mistral", SIGLIP | dict(model_type="pixtral", head_dim=8)),
}


@pytest.mark.filterwarnings("error:config.json")  # a key that nothing reads
@pytest.mark.parametrize("name", COMPOSITES)
def test_the_text_model_of_a_checkpoint_with_images_runs_alone(tmp_path, name):
    prefix, model_type, vision = COMPOSITES[name]
    text = FAMILIES[name].make(1)
    config = getattr(tf, prefix + "Config")(
        text_config=text.config.to_dict() | {"model_type": model_type},
        vision_config=vision,
        tie_word_embeddings=text.config.tie_word_embeddings,
    )
    model = reference(getattr(tf, prefix + "ForConditionalGeneration"), config)
    model.save_pretrained(tmp_path / "whole")
    model = model.language_model if name == "llama4" else model  # the whole fails without images
    loaded = zoo.load(tmp_path / "whole")
    assert loaded.architecture.name == name
    agrees(model, loaded, 99, lengths=(1, 17))
    # What is converted is the text model's own folder.
    convert(tmp_path / "whole", tmp_path / "text", layout="hf")
    again = type(text).from_pretrained(tmp_path / "text", attn_implementation="eager").eval()
    tokens = torch.tensor(texts(99, 1, 9))
    with torch.no_grad():
        assert torch.allclose(again(tokens).logits, model(tokens).logits, atol=1e-4)
    convert(tmp_path / "whole", tmp_path / "mlx")
    agrees(model, zoo.load(tmp_path / "mlx"), 99, lengths=(9,))


def test_the_text_model_of_kimi_k25_runs_by_the_names_of_its_release(tmp_path):
    """transformers 5.24 does not write this checkpoint back as it was released."""
    model = FAMILIES["deepseek-v3"].make(1)
    model.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = {f"language_model.{name}": tensor for name, tensor in load_file(file).items()}
    tensors |= {name: torch.ones(2, 2) for name in ("vision_tower.patch_embed.proj.weight", "mm_projector.0")}
    save_file(tensors, file, {"format": "pt"})
    edit(
        tmp_path,
        lambda config: dict(
            architectures=["KimiK25ForConditionalGeneration"],
            model_type="kimi_k25",
            text_config=config | dict(model_type="kimi_k2"),
            vision_config={},
        ),
    )
    loaded = zoo.load(tmp_path)
    assert loaded.architecture.name == "deepseek-v3"
    agrees(model, loaded, 99, lengths=(1, 17))
