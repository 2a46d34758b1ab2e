"""gpt-oss against transformers and mlx-lm, on small random models, unpacked and in MXFP4 as released."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import GptOssConfig, GptOssForCausalLM
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

import zoo  # isort: skip
import mlx.core as mx

from zoo.checkpoint.parameters import export
from zoo.checkpoint.quantized_matrix import as_array
from zoo.testing import randomise

from .support import (
    TOLERANCE,
    agrees,
    agrees_from_folder,
    decodes_as,
    difference,
    exports_as_written,
    reference,
    texts,
)

pytestmark = [
    pytest.mark.filterwarnings("error:config.json"),  # a key that nothing reads
    pytest.mark.filterwarnings("error:.*cannot stay packed"),
]

VOCAB = 97
COMMON = dict(
    vocab_size=VOCAB,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=3,
    num_local_experts=4,
    num_experts_per_tok=2,
    sliding_window=6,
    max_position_embeddings=64,
    pad_token_id=None,
)
SHAPES = {
    "grouped": dict(num_attention_heads=4, num_key_value_heads=2, head_dim=16),
    "clipped low, plain positions": dict(
        num_attention_heads=6,
        num_key_value_heads=3,
        head_dim=8,
        num_local_experts=6,
        num_experts_per_tok=4,
        swiglu_limit=0.5,
        swiglu_alpha=1.1,
        attention_bias=False,
        layer_types=["full_attention", "full_attention", "sliding_attention"],
        rope_parameters=dict(rope_type="default", rope_theta=10000.0),
        tie_word_embeddings=True,
    ),
}


def made(shape="grouped", **changes):
    return reference(GptOssForCausalLM, GptOssConfig(**COMMON | SHAPES[shape] | changes))


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_equal_transformers(shape, tmp_path):
    agrees_from_folder(made(shape), tmp_path, VOCAB)


def test_defaults_are_those_of_transformers(tmp_path):
    model = made()
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for key in (
        "rope_parameters",
        "layer_types",
        "rms_norm_eps",
        "attention_bias",
        "swiglu_limit",
        "swiglu_alpha",
    ):
        del config[key]
    (tmp_path / "config.json").write_text(json.dumps(config))
    agrees(model, zoo.load(tmp_path), VOCAB, lengths=(17,))


def test_what_is_exported_is_what_transformers_wrote(tmp_path):
    made().save_pretrained(tmp_path)
    exports_as_written(tmp_path)


def test_cached_decode_past_the_window_equals_transformers(tmp_path):
    model = made()
    model.save_pretrained(tmp_path)
    decodes_as(model, zoo.load(tmp_path), VOCAB, 5, 24)


def packed(folder):
    """Rewrite a folder's experts in MXFP4, as OpenAI released them, with random numbers; give the unpacked ones."""
    generator, unpacked = torch.Generator().manual_seed(1), {}
    tensors = load_file(folder / "model.safetensors")
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        experts, inputs, outputs = tensors.pop(name).shape
        blocks = torch.randint(0, 256, (experts, outputs, inputs // 32, 16), generator=generator)
        scales = torch.randint(120, 127, (experts, outputs, inputs // 32), generator=generator)
        tensors[name + "_blocks"], tensors[name + "_scales"] = blocks.to(torch.uint8), scales.to(torch.uint8)
        unpacked[name] = convert_moe_packed_tensors(
            tensors[name + "_blocks"], tensors[name + "_scales"], dtype=torch.float32
        )
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = dict(
        quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn"]
    )
    config |= dict(experts_per_token=2, initial_context_length=4096)
    (folder / "config.json").write_text(json.dumps(config))
    return unpacked


def test_mxfp4_is_unpacked_exactly(tmp_path):
    model = made()
    model.save_pretrained(tmp_path)
    unpacked = packed(tmp_path)
    with torch.no_grad():
        for name, tensor in unpacked.items():
            assert len(tensor.unique()) > 30
            model.get_parameter(name).copy_(tensor)
    loaded = zoo.load(tmp_path)
    for layer in loaded.model.layers:
        for part in ("gate", "up", "down"):
            experts = layer.feedforward.experts[part]
            assert (experts.mode, experts.weight.dtype) == ("mxfp4", mx.uint32)
        assert "scales" not in layer.mixer.query and "scales" not in layer.feedforward.router.scores
    exported = export(loaded.model, loaded.architecture, loaded.recipe)
    for name, tensor in unpacked.items():
        assert np.array_equal(np.array(as_array(exported[name]).astype(mx.float32)), tensor.numpy()), name
    agrees(model, loaded, VOCAB, lengths=(17,))


def test_a_folder_that_mlx_lm_wrote(tmp_path):
    from mlx_lm.models.gpt_oss import Model, ModelArgs
    from mlx_lm.utils import save_model

    made().save_pretrained(tmp_path / "hf")
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    rope = config.pop("rope_parameters")
    # mlx-lm rounds the ends of the ramp whatever `truncate` says.
    config |= dict(rope_theta=rope.pop("rope_theta"), rope_scaling=rope | dict(truncate=True))
    theirs = Model(ModelArgs.from_dict(config))
    randomise(theirs)
    save_model(tmp_path / "mlx", theirs)
    (tmp_path / "mlx" / "config.json").write_text(json.dumps(config))
    tokens = mx.array(texts(VOCAB, 2, 17))
    mx.disable_compile()  # compiling on the CPU calls the C++ compiler
    try:
        expected = np.array(theirs(tokens))
    finally:
        mx.enable_compile()
    assert difference(zoo.load(tmp_path / "mlx").model(tokens), torch.tensor(expected)) <= TOLERANCE
