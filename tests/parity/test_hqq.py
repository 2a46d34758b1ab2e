"""HQQ's layers by its own code: their states as transformers 4 saved them, compared with what the layers make of them."""

import numpy as np
import pytest
import torch
from hqq.core.quantize import BaseQuantizeConfig, HQQLinear

from zoo.checkpoint.quantized_tensors import gather
from zoo.checkpoint.safetensors import Tensors
from zoo.host.registry import default_registry

import mlx.core as mx  # isort: skip


@pytest.mark.parametrize("bits", [8, 4, 3, 2, 1])
@pytest.mark.parametrize(
    ("axis", "group", "view", "packed"),
    [
        (1, 64, False, True),
        (1, 64, True, True),
        (1, 256, False, True),
        (1, 16, False, False),
        (0, 64, False, False),
    ],
)
def test_numbers_are_those_of_the_layer(bits, axis, group, view, packed):
    torch.manual_seed(0)
    layer = torch.nn.Linear(128 if group < 256 else 512, 96, bias=False)
    config = BaseQuantizeConfig(nbits=bits, group_size=group, axis=axis, view_as_float=view)
    made = HQQLinear(layer, config, compute_dtype=torch.float32, device="cpu")
    state = {key: value for key, value in made.state_dict().items() if value is not None}
    tensors = Tensors({f"a.{key}": mx.array(value.numpy()) for key, value in state.items()}, {}, {})
    settings = {"quantization_config": dict(quant_method="hqq", quant_config={}, skip_modules=["lm_head"])}
    found = gather(tensors, settings, default_registry(), mx.float32)
    assert list(found.arrays) == ["a.weight"]
    matrix = found.arrays["a.weight"]
    assert isinstance(matrix, mx.array) != packed and bool(found.dequantized) != packed
    numbers = np.array(matrix.numbers(mx.float32) if packed else matrix)
    np.testing.assert_allclose(numbers, made.dequantize().numpy(), rtol=1e-5, atol=1e-5)
