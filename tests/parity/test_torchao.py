"""torchao's tensors by its own code: flattened as folders have them, and as it dequantizes them."""

import numpy as np
import pytest
import torch
import torchao.quantization as torchao
from torchao.prototype.safetensors import safetensors_support as support

from zoo.checkpoint.quantized_tensors import gather
from zoo.checkpoint.safetensors import Tensors
from zoo.host.registry import default_registry

import mlx.core as mx  # isort: skip

CONFIGS = {
    "int8": lambda: torchao.Int8WeightOnlyConfig(version=2),
    "int8 in groups": lambda: torchao.Int8WeightOnlyConfig(version=2, granularity=torchao.PerGroup(64)),
    "int8 and activations": lambda: torchao.Int8DynamicActivationInt8WeightConfig(version=2),
    **{
        f"int{bits}": lambda bits=bits: torchao.IntxWeightOnlyConfig(
            weight_dtype=getattr(torch, f"int{bits}"), granularity=torchao.PerGroup(32)
        )
        for bits in range(2, 9)
    },
    "int4 and activations": lambda: torchao.Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=torchao.PerGroup(32)
    ),
    "float8": lambda: torchao.Float8WeightOnlyConfig(),
}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_numbers_are_those_that_it_undoes(name, dtype):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 96, bias=True).to(dtype))
    torchao.quantize_(model, CONFIGS[name]())
    expected = model[0].weight.dequantize().float().numpy()
    state = {key: value.data if key.endswith("bias") else value for key, value in model.state_dict().items()}
    data, metadata = support.flatten_tensor_state_dict(state)
    kinds, arrays = {}, {}
    for key, value in data.items():
        byte = value.dtype == torch.float8_e4m3fn
        kinds[key] = "F8_E4M3" if byte else ""
        bare = value.view(torch.uint8) if byte else value
        arrays[key] = mx.array(bare.float().numpy() if bare.is_floating_point() else bare.numpy())
    config = {
        "quantization_config": dict(quant_method="torchao", quant_type={}, modules_to_not_convert=["lm_head"])
    }
    found = gather(Tensors(arrays, kinds, metadata), config, default_registry(), mx.float32)
    assert sorted(found.arrays) == ["0.bias", "0.weight"] and not found.dequantized
    numbers = found.arrays["0.weight"].numbers(mx.float32)
    tolerance = 1e-5 if dtype == torch.float32 else 2**-7  # it multiplies in bfloat16
    np.testing.assert_allclose(np.array(numbers), expected, rtol=tolerance, atol=1e-6)
