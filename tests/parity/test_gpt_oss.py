"""gpt-oss in MXFP4, as it was released, against transformers."""

import mlx.core as mx
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

import zoo
from zoo.checkpoint.parameters import export
from zoo.checkpoint.quantized_matrix import as_array

from .families import FAMILIES
from .family import VOCAB, edit
from .support import agrees


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
    released = dict(experts_per_token=2, initial_context_length=4096)
    quantization = dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn"])
    edit(folder, lambda config: config | released | dict(quantization_config=quantization))
    return unpacked


@pytest.mark.filterwarnings("error:config.json")
@pytest.mark.filterwarnings("error:.*cannot stay packed")
def test_mxfp4_is_unpacked_exactly(tmp_path):
    model = FAMILIES["gpt-oss"].make(wide=True)
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
