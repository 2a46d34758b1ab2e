"""Model Optimizer's NVFP4 and FP8, with settings in the config or in a file beside it."""

import json

import numpy as np
import pytest

import zoo
from zoo.checkpoint.formats.floats import read_modelopt
from zoo.checkpoint.safetensors import Tensors
from zoo.errors import CheckpointError, ConfigError

from .packers import FP4, FP8, halves_in_bytes

import mlx.core as mx  # isort: skip

SETTINGS = dict(quant_method="modelopt", quant_algo="NVFP4", group_size=16, exclude_modules=["lm_head"])
BESIDE = {"producer": {"name": "modelopt"}, "quantization": dict(quant_algo="NVFP4", exclude_modules=[])}


def nvfp4(name, shape):
    draw = np.random.default_rng(sum(map(ord, name)))
    codes, scales = draw.integers(0, 16, shape), draw.integers(40, 120, (shape[0], shape[1] // 16))
    second = np.array(draw.uniform(1e-4, 4e-4), np.float32)
    parts = {
        "weight": halves_in_bytes(codes),
        "weight_scale": scales.astype(np.uint8),
        "weight_scale_2": second,
        "input_scale": np.array(0.1, np.float32),
    }
    return parts, FP4[codes] * np.repeat(FP8[scales], 16, 1) * second


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("architecture", ["llama", "mixtral"])
def test_nvfp4_stays_packed(pair, beside, architecture):
    folder, check = pair(nvfp4, None if beside else SETTINGS, architecture, {"weight_scale": "F8_E4M3"})
    if beside:
        (folder / "hf_quant_config.json").write_text(json.dumps(BESIDE))
    layer = check(zoo.load(folder)).model.layers[0].feedforward
    down = layer.experts.down if architecture == "mixtral" else layer.down
    assert down.mode == "nvfp4" and "global_scale" in down


@pytest.mark.usefixtures("silent")
def test_fp8_stays_packed_and_the_caches_scales_are_left_out(pair):
    def make(name, shape):
        codes = np.random.default_rng(len(name)).choice(np.flatnonzero(np.isfinite(FP8)), shape)
        scale = np.array(3e-4, np.float32)
        parts = {"weight": codes.astype(np.uint8), "weight_scale": scale, "input_scale": scale}
        if "k_proj" in name:
            parts["k_scale"] = scale
        return parts, FP8[codes] * scale

    folder, check = pair(make, SETTINGS | dict(quant_algo="FP8"), kinds={"weight": "F8_E4M3"})
    assert check(zoo.load(folder)).model.layers[0].mixer.key.mode == "mxfp8"


@pytest.mark.parametrize(
    "settings",
    [dict(quant_algo="W4A8_AWQ"), dict(quant_algo=None), dict(quant_algo=["FP8"]), dict(quantization=3)],
)
def test_other_algorithms_are_refused_by_name(settings):
    with pytest.raises(ConfigError, match=r"config\.json: modelopt: quant"):
        read_modelopt(Tensors({}, {}, {}), SETTINGS | settings)


@pytest.mark.parametrize(
    ("missing", "word"),
    [("weight_scale_2", "no a.weight_scale_2"), ("weight", "no a.weight of U8 or F8_E4M3")],
)
def test_missing_parts_are_named(missing, word):
    parts, _ = nvfp4("a", (8, 32))
    del parts[missing]
    kinds = {f"a.{part}": "U8" for part in parts} | {"a.weight_scale": "F8_E4M3"}
    with pytest.raises(CheckpointError) as caught:
        read_modelopt(
            Tensors({f"a.{part}": mx.array(value) for part, value in parts.items()}, kinds, {}), SETTINGS
        )
    assert word in str(caught.value)
