"""Damaged quantized tensors and settings: the result is a matrix or a `ZooError`, never another exception."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.checkpoint.quantized_matrix import QuantizedMatrix
from zoo.checkpoint.quantized_tensors import gather
from zoo.checkpoint.safetensors import Tensors
from zoo.errors import ZooError
from zoo.host.registry import default_registry

from . import packers
from .test_bitsandbytes import eight_bits, four_bits
from .test_hqq import hqq
from .test_torchao import parts_of

DRAW = np.random.default_rng(0)
CODES, SCALES = DRAW.integers(0, 16, (32, 128)), np.full((32, 2), 0.01, np.float16)
ZEROS, GROUPS = DRAW.integers(1, 16, (32, 2)), DRAW.permutation(np.arange(128) // 64)
BYTES = DRAW.integers(0, 127, (32, 128)).astype(np.uint8)
FP4 = dict(weight_packed=BYTES[:, :64])
CT = dict(
    quant_method="compressed-tensors", config_groups={"a": {"weights": {"num_bits": 4, "group_size": 64}}}
)

TORCHAO = {kind: parts_of(kind, 32, 128, bits=4) for kind in ("Int4Tensor", "IntxUnpackedToInt8Tensor")}
BNB = dict(quant_method="bitsandbytes")


def torchao(kind):
    """Its parts, whose names begin with the parameter's."""
    return {f"_weight_{name}": part for name, part in TORCHAO[kind][0].items()}


# What a file's metadata says of the matrix; read of torchao's formats alone.
METADATA = {name: TORCHAO[kind][1] for name, kind in zip(("int4", "intx"), TORCHAO, strict=True)}
# Of each format: the parts of a matrix, its settings, and the header's dtypes that bytes do not tell.
FORMATS = {
    "awq": (packers.awq(CODES, SCALES, ZEROS), dict(quant_method="awq"), {}),
    "gptq": (packers.gptq(CODES, SCALES, ZEROS, GROUPS, 4), dict(quant_method="gptq", group_size=64), {}),
    "integers": (packers.pack_quantized(CODES, SCALES, ZEROS, 4) | dict(weight_g_idx=GROUPS), CT, {}),
    "bytes": (dict(weight=BYTES.view(np.int8), weight_scale=SCALES), CT, {}),
    "nvfp4": (
        FP4 | dict(weight_scale=BYTES[:, :8], weight_global_scale=np.ones(1, np.float32)),
        CT,
        dict(weight_scale="F8_E4M3"),
    ),
    "mxfp4": (FP4 | dict(weight_scale=BYTES[:, :4]), CT, {}),
    "fp8": (
        dict(weight=BYTES, weight_scale_inv=np.ones((1, 2), np.float32)),
        dict(quant_method="fp8", weight_block_size=[64, 64], scale_fmt="ue8m0"),
        dict(weight="F8_E4M3"),
    ),
    "modelopt": (
        dict(weight=BYTES[:, :64], weight_scale=BYTES[:, :8], weight_scale_2=np.ones((), np.float32)),
        dict(quant_method="modelopt", quant_algo="NVFP4"),
        dict(weight_scale="F8_E4M3"),
    ),
    "gemv": (
        packers.gemv(CODES, SCALES, ZEROS),
        dict(quant_method="awq", version="gemv", group_size=64),
        {},
    ),
    "auto-round": (packers.gptq(CODES, SCALES, ZEROS, GROUPS, 4), dict(quant_method="auto-round"), {}),
    "autofp8": (
        dict(weight=BYTES, weight_scale=np.ones((), np.float32)),
        dict(quant_method="fp8"),
        dict(weight="F8_E4M3"),
    ),
    "nf4": (four_bits((32, 128))[0], BNB, {}),
    "nested nf4": (four_bits((32, 128), nested=True)[0], BNB, {}),
    "bitsandbytes' bytes": (eight_bits((32, 128))[0], BNB, {}),
    "hqq": (hqq((32, 128))[0], dict(quant_method="hqq"), {}),
    "hqq, 3 bits": (hqq((32, 128), 3, axis=0)[0], dict(quant_method="hqq"), {}),
    "int4": (torchao("Int4Tensor"), dict(quant_method="torchao"), {}),
    "intx": (torchao("IntxUnpackedToInt8Tensor"), dict(quant_method="torchao"), {}),
    "mlx": (
        dict(weight=BYTES.view(np.uint32), scales=SCALES, biases=SCALES, global_scale=np.ones(1, np.float32)),
        dict(bits=8, group_size=64),
        {},
    ),
}
TYPES = [np.uint8, np.int8, np.int32, np.uint32, np.int64, np.float16, np.float32]
KINDS = ["U8", "F8_E4M3", "F8_E8M0", "F8_E5M2", "F8_E4M3FNUZ"]  # that MLX reads as uint8, or would
VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-3, 300), st.floats(), st.sampled_from(["gptq", "gemm", "re:["])
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["weights", "num_bits"]), inner)
    ),
    max_leaves=4,
)
KEYS = [
    "bits",
    "group_size",
    "version",
    "format",
    "checkpoint_format",
    "sym",
    "zero_point",
    "weight_block_size",
]
KEYS += ["scale_fmt", "config_groups", "sparsity_config", "quant_algo", "quantization", "ignore", "mode", "a"]
KEYS += ["packing_format", "backend", "data_type", "rotation_config"]


def changes(array):
    """Ways to damage an array."""
    return st.one_of(
        st.just(None),
        st.sampled_from(TYPES).map(lambda dtype: array.astype(dtype)),
        st.integers(0, 40).map(lambda rows: array[:rows] if array.ndim else array),
        st.integers(0, 40).map(lambda columns: array[..., :columns] if array.ndim else array),
        st.just(array.T),
        st.just(array.reshape(-1)),
        st.just(array[None]),
        st.just(array.reshape(-1)[:1].sum(dtype=array.dtype)),
        st.integers(-2, 2**31 - 1).map(
            lambda value: np.full_like(array, np.int64(value).astype(array.dtype))
        ),
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:overflow")
@settings(max_examples=400, deadline=None)
@given(st.data())
def test_a_damaged_matrix_is_a_matrix_or_refused(data):
    format = data.draw(st.sampled_from(sorted(FORMATS)))
    parts, config, kinds = FORMATS[format]
    metadata = {"a.weight": METADATA[format]} if format in METADATA else {}
    parts, kinds = dict(parts), dict(kinds)
    for name in data.draw(st.lists(st.sampled_from(sorted(parts)), max_size=2)):
        if parts[name] is not None:
            parts[name] = data.draw(changes(parts[name]))
    for name in data.draw(st.lists(st.sampled_from(sorted(parts)), max_size=1)):
        kinds[name] = data.draw(st.sampled_from(KINDS))
    config = config | data.draw(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=2))
    arrays = {f"a.{name}": mx.array(np.asarray(value)) for name, value in parts.items() if value is not None}
    dtypes = {
        name: packers.NAMES.get(str(array.dtype).rpartition(".")[2], "U32") for name, array in arrays.items()
    }
    of_bytes = [name for name, array in arrays.items() if array.dtype == mx.uint8]
    dtypes |= {name: kinds[name[2:]] for name in of_bytes if name[2:] in kinds}
    try:
        found = gather(
            Tensors(arrays, dtypes, metadata), {"quantization_config": config}, default_registry(), mx.float32
        )
    except ZooError as error:
        assert "\n" not in str(error)
        return
    for array in found.arrays.values():
        mx.eval(array.numbers() if isinstance(array, QuantizedMatrix) else array)


def test_undamaged_ones_are_matrices():
    for name, (parts, config, kinds) in FORMATS.items():
        arrays = {f"a.{part}": mx.array(value) for part, value in parts.items()}
        dtypes = {f"a.{part}": packers.NAMES.get(value.dtype.name, "U32") for part, value in parts.items()}
        dtypes |= {f"a.{part}": kind for part, kind in kinds.items()}
        found = gather(
            Tensors(arrays, dtypes, {"a.weight": METADATA.get(name, "{}")}),
            {"quantization_config": config},
            default_registry(),
        ).arrays
        assert list(found) == ["a.weight"] and found["a.weight"].shape == (32, 128), name
