"""Quantized folders by the code of compressed-tensors and of transformers' fine-grained FP8, which also undoes it."""

import json
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization import (
    QuantizationConfig,
    apply_quantization_config,
    preset_name_to_scheme,
)
from compressed_tensors.quantization.utils import calculate_qparams, is_module_quantized
from compressed_tensors.quantization.utils.helpers import generate_gparam
from safetensors.torch import load_file, save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize, Fp8Quantize

import zoo  # isort: skip
import mlx.core as mx

from zoo.checkpoint.quantized_tensors import gather
from zoo.checkpoint.safetensors import Tensors
from zoo.host.registry import default_registry

from .families import FAMILIES as KNOWN
from .support import TOLERANCE, difference, texts

VOCAB = 97
COMMON = dict(vocab_size=VOCAB, hidden_size=128, intermediate_size=320, num_hidden_layers=2)
IGNORED = ["lm_head", "re:.*layers.1.*v_proj"]

# What each of compressed-tensors' schemes is written as, and what MLX holds it in; None where it is unpacked.
SCHEMES = {
    "W2A16": ("pack-quantized", "affine"),
    "W3A16": ("pack-quantized", "affine"),
    "W4A16": ("pack-quantized", "affine"),
    "W4A16_ASYM": ("pack-quantized", "affine"),
    "W5A16": ("pack-quantized", "affine"),
    "W6A16": ("pack-quantized", "affine"),
    "W7A16": ("pack-quantized", None),
    "W8A16": ("pack-quantized", "affine"),
    "INT8": ("int-quantized", "affine"),
    "FP8": ("float-quantized", "mxfp8"),
    "FP8_DYNAMIC": ("float-quantized", "mxfp8"),
    "FP8_BLOCK": ("float-quantized", None),
    "NVFP4A16": ("nvfp4-pack-quantized", "nvfp4"),
    "MXFP4A16": ("mxfp4-pack-quantized", "mxfp4"),
    "MXFP8A16": ("mxfp8-quantized", "mxfp8"),
}


def calibrate(module):
    """Make a module's scales and zero points from its weight's own extremes, group by group."""
    args, weight = module.quantization_scheme.weights, module.weight.data
    divisor = None
    if args.strategy in ("group", "tensor_group"):
        groups = weight.unflatten(-1, (-1, args.group_size))
        low, high = groups.amin(-1), groups.amax(-1)
    elif args.strategy == "channel":
        low, high = weight.amin(-1, keepdim=True), weight.amax(-1, keepdim=True)
    elif args.strategy == "block":
        rows, columns = args.block_structure
        filled = torch.nn.functional.pad(weight, (0, -weight.shape[1] % columns, 0, -weight.shape[0] % rows))
        blocks = filled.unflatten(0, (-1, rows)).unflatten(-1, (-1, columns))
        low, high = blocks.amin((1, 3)), blocks.amax((1, 3))
    else:
        low, high = weight.min(), weight.max()
    if args.strategy == "tensor_group":
        divisor = generate_gparam(weight.min().reshape(1), weight.max().reshape(1))
        module.weight_global_scale.data = divisor
    scales, zeros = calculate_qparams(low, high, args, global_scale=divisor)
    for name, value in (("weight_scale", scales), ("weight_zero_point", zeros)):
        if hasattr(module, name):
            parameter = getattr(module, name)
            parameter.data = value.reshape(parameter.shape).to(parameter.dtype)


def compressed(folder, groups):
    """Write a folder by compressed-tensors' compressors; gives the model of the numbers that they undo it to."""
    model = KNOWN["llama"].make(COMMON)
    config = QuantizationConfig(config_groups=groups, ignore=IGNORED)
    apply_quantization_config(model, config)
    quantized = [module for module in model.modules() if is_module_quantized(module)]
    for module in quantized:
        calibrate(module)
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(folder)
    compressor.update_config(folder)
    compressor.decompress_model(model)
    for module in quantized:
        module.quantization_enabled = False  # activations stay floats
    model.float()
    exactly(model, load_file(folder / "model.safetensors"))
    return model


def exactly(model, tensors):
    """Undo NVFP4 once more: their decompressor rounds its numbers to bfloat16."""
    for name in [name for name in tensors if name.endswith("weight_global_scale")]:
        owner = name.removesuffix(".weight_global_scale")
        packed, scale = tensors[f"{owner}.weight_packed"], tensors[f"{owner}.weight_scale"].float()
        numbers = unpack_fp4_from_uint8(packed, len(packed), packed.shape[1] * 2, torch.float32)
        exact = numbers * scale.repeat_interleave(16, dim=1) / tensors[name]
        rounded = model.get_submodule(owner).weight
        assert ((rounded - exact).abs() <= 2**-7 * exact.abs()).all()
        rounded.data = exact


def agrees(folder, model, tolerance=TOLERANCE):
    """Assert the model's logits; gives what was loaded, and what was warned of."""
    tokens = texts(VOCAB, 2, 17)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        loaded = zoo.load(folder)
    with torch.no_grad():
        expected = model(torch.tensor(tokens)).logits
    assert difference(loaded.model(mx.array(tokens)), expected) <= tolerance
    return loaded.model, [str(each.message) for each in told if issubclass(each.category, UserWarning)]


def mode(layer):
    return getattr(layer, "mode", None)


@pytest.mark.parametrize("name", SCHEMES)
def test_every_scheme_of_compressed_tensors(name, tmp_path):
    form, quantization = SCHEMES[name]
    scheme = preset_name_to_scheme(name, ["Linear"])
    if scheme.weights.group_size == 128:
        scheme.weights.group_size = 64  # 320 inputs are no multiple of 128
    model = compressed(tmp_path, {"group_0": scheme})
    assert json.loads((tmp_path / "config.json").read_text())["quantization_config"]["format"] == form
    found, told = agrees(tmp_path, model)
    assert mode(found.layers[0].feedforward.up) == mode(found.layers[1].feedforward.down) == quantization
    assert mode(found.layers[1].mixer.value) is None is mode(found.head.output)
    assert len(told) == (quantization is None)


@pytest.mark.parametrize(
    ("name", "changes", "packed"),
    [
        ("W4A16", dict(group_size=32), 32),
        ("W4A16_ASYM", dict(group_size=32), 32),
        ("W4A16", dict(strategy="channel", group_size=None), 64),  # 320 inputs: five blocks of 64
        ("W8A16", dict(strategy="channel", group_size=None, symmetric=False), 64),
        ("W4A16", dict(group_size=16), None),
    ],
)
def test_groups_of_other_sizes(name, changes, packed, tmp_path):
    scheme = preset_name_to_scheme(name, ["Linear"])
    for key, value in changes.items():
        setattr(scheme.weights, key, value)
    if not scheme.weights.symmetric:
        scheme.weights.zp_dtype = torch.int8
    found, told = agrees(tmp_path, compressed(tmp_path, {"group_0": scheme}))
    assert getattr(found.layers[0].feedforward.down, "group_size", None) == packed
    assert len(told) == (packed is None)


def test_several_groups(tmp_path):
    groups = {
        "first": preset_name_to_scheme("NVFP4A16", ["re:.*mlp.*"]),
        "second": preset_name_to_scheme("W8A16", ["re:.*self_attn.*"]),
    }
    model = compressed(tmp_path, groups)
    settings = json.loads((tmp_path / "config.json").read_text())["quantization_config"]
    assert settings["format"] == "mixed-precision"
    found, told = agrees(tmp_path, model)
    assert (mode(found.layers[0].feedforward.up), found.layers[0].mixer.key.bits) == ("nvfp4", 8)
    assert mode(found.layers[1].mixer.value) is None and not told


FAMILIES = {"llama": {}, "mixtral": dict(num_local_experts=4, num_experts_per_tok=2)}


def in_fp8(model, folder, **settings):
    """Rewrite a folder by transformers' own quantizer; puts into the model what its dequantizer makes of that."""
    quantizer = SimpleNamespace(quantization_config=SimpleNamespace(**settings))
    write, undo = Fp8Quantize(quantizer), Fp8Dequantize(quantizer)
    model.save_pretrained(folder)
    tensors, plain = load_file(folder / "model.safetensors"), {}
    for name in [name for name in tensors if "_proj" in name or ".experts." in name]:
        done = write.convert({name: tensors.pop(name)})
        tensors |= done
        if len(done) == 2:
            plain[name] = undo._dequantize_one(*done.values(), output_dtype=torch.float32)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"] = dict(
        quant_method="fp8", activation_scheme="dynamic", modules_to_not_convert=["lm_head"], **settings
    )
    path.write_text(json.dumps(config))
    unpacked = folder / "unpacked"
    model.save_pretrained(unpacked)
    numbers = load_file(unpacked / "model.safetensors") | plain
    save_file(numbers, unpacked / "model.safetensors", {"format": "pt"})
    return type(model).from_pretrained(unpacked, attn_implementation="eager").eval()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("size", "scale_fmt", "quantization"),
    [
        ([64, 64], "float", None),
        ([64, 64], "ue8m0", "mxfp8"),
        ([32, 32], "ue8m0", "mxfp8"),
        (None, "float", "mxfp8"),
    ],
)
def test_fine_grained_fp8_of_transformers(family, size, scale_fmt, quantization, tmp_path):
    plain = KNOWN[family].make(COMMON | FAMILIES[family])
    model = in_fp8(plain, tmp_path, weight_block_size=size, scale_fmt=scale_fmt)
    found, told = agrees(tmp_path, model)
    feedforward = found.layers[0].feedforward
    assert mode(getattr(feedforward, "experts", feedforward).down) == quantization
    assert len(told) == (quantization is None)
    kinds = {str(tensor.dtype) for tensor in load_file(tmp_path / "model.safetensors").values()}
    assert "torch.float8_e4m3fn" in kinds
    assert ("torch.float8_e8m0fnu" in kinds) == (scale_fmt == "ue8m0")


def test_awq_is_read_as_mlx_lm_reads_it():
    """AutoAWQ needs CUDA: random words, of which mlx-lm makes the same but for biases that it rounds to a half."""
    from mlx_lm.utils import _transform_awq_weights

    draw = np.random.default_rng(0)
    given = {
        "a.qweight": mx.array(draw.integers(-(2**31), 2**31, (256, 6)).astype(np.int32)),
        "a.qzeros": mx.array(draw.integers(-(2**31), 2**31, (4, 6)).astype(np.int32)),
        "a.scales": mx.array(draw.uniform(0.01, 0.02, (4, 48)).astype(np.float16)),
    }
    settings = dict(quant_method="awq", bits=4, group_size=64, zero_point=True, version="gemm")
    theirs, quantization = _transform_awq_weights(given, settings)
    ours = gather(Tensors(given, {}, {}), {"quantization_config": settings}, default_registry()).arrays[
        "a.weight"
    ]
    assert quantization == dict(bits=ours.quantization.bits, group_size=ours.quantization.group_size)
    assert mx.array_equal(ours.weight, theirs["a.weight"])
    assert mx.array_equal(ours.scales, theirs["a.scales"])
    assert mx.array_equal(ours.biases.astype(mx.float16), theirs["a.biases"])
