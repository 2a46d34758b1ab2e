"""Quantized checkpoints: the tensors that make up one matrix become one `QuantizedMatrix` under its weight's name.

What a config.json says of the quantization is compared with the tensors, whose shapes decide. `FormatReader` is the base
of the formats' readers: it takes the parts of a matrix by name, and puts it back under its weight's name.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import mlx.core as mx

from zoo.architecture import QuantizedFormat
from zoo.checkpoint.quantization_settings import (
    AFFINE_BITS,
    AFFINE_GROUPS,
    FLOAT_MODES,
    QuantizationSettings,
    origin_of,
    refused,
)
from zoo.checkpoint.quantized_matrix import QuantizationSpec, QuantizedMatrix, is_float, possible_specs
from zoo.checkpoint.safetensors import Tensors
from zoo.errors import CheckpointError, ConfigError, PluginError, warn
from zoo.host.registry import Registry


class FormatReader:
    """A checkpoint's tensors while a format reads them. Matrices that cannot be packed become `floats`.

    Those are `dtype` where one is given, else the half that the checkpoint has.
    """

    def __init__(self, tensors: Tensors, dtype: mx.Dtype | None = None) -> None:
        self.tensors = tensors
        self.arrays = dict(tensors.arrays)
        kinds = set(tensors.dtypes.values())
        self.floats = dtype or (mx.float16 if "F16" in kinds and "BF16" not in kinds else mx.bfloat16)

    def owners(self, part: str) -> list[str]:
        """The names that end in `part`, without it."""
        return [name.removesuffix(part) for name in self.arrays if name.endswith(part)]

    def kind(self, name: str) -> str:
        """A tensor's dtype as its header names it; "" when there is none."""
        return self.tensors.dtypes.get(name, "") if name in self.arrays else ""

    def take(self, name: str) -> mx.array | None:
        """Remove and return a tensor; None when there is none. CheckpointError when it is empty."""
        array = self.arrays.pop(name, None)
        if array is not None and 0 in array.shape:
            raise CheckpointError(f"{name}: an empty tensor {tuple(array.shape)}")
        return array

    def need(self, name: str, beside: str) -> mx.array:
        """Remove and return a tensor. CheckpointError when it is missing or empty."""
        array = self.take(name)
        if array is None:
            raise CheckpointError(f"{beside}: no {name} beside it")
        return array

    def whole_numbers(self, name: str, count: int) -> list[int]:
        """Remove a tensor, and read its numbers. CheckpointError unless it holds `count` whole numbers from 0."""
        array = self.need(name, name)
        numbers = array.flatten().tolist() if array.size == count and not is_float(array) else []
        if not numbers or not all(type(number) is int and number >= 0 for number in numbers):
            raise CheckpointError(f"{name}: expected whole numbers from 0, {count} of them")
        return numbers

    def drop(self, *parts: str) -> None:
        """Drop the tensors whose names end in these parts: they quantize activations, which are floats here."""
        for name in [name for name in self.arrays if name.rpartition(".")[2] in parts]:
            del self.arrays[name]

    def give(self, name: str, matrix: QuantizedMatrix | mx.array) -> None:
        """Add a matrix, and record its name where it is not packed. CheckpointError when the name is taken."""
        if name in self.arrays:
            raise CheckpointError(f"{name}: stands there both quantized and plain")
        if isinstance(matrix, QuantizedMatrix):
            matrix = replace(matrix, dequantized=self.tensors.dequantized)
        else:
            self.tensors.dequantized.add(name)
            matrix = matrix.astype(self.floats)
        self.arrays[name] = matrix

    def result(self) -> Tensors:
        """The tensors after all matrices were read."""
        return replace(self.tensors, arrays=self.arrays)


def mismatched_parts(parts: Mapping[str, mx.array | None]) -> CheckpointError:
    """The error that tensors, by name, are not the parts of one matrix."""
    described = [
        f"{name} {tuple(array.shape)} {str(array.dtype).removeprefix('mlx.core.')}"
        for name, array in parts.items()
        if array is not None
    ]
    return CheckpointError(f"{', '.join(described)}: not the parts of one quantized matrix")


def is_words(array: mx.array) -> bool:
    """Whether it holds words of 32 bits."""
    return array.dtype in (mx.int32, mx.uint32)


SETTINGS_KEYS = ("quantization", "quantization_config", "compression_config")  # the last in folders of 2024
# What ends the names of tensors that only a quantized matrix has.
MARKS = (".qweight", ".weight_packed", ".W_q", ".SCB", ".quant_state.bitsandbytes__nf4")
GLOBAL_SCALE = 448.0 * 6.0  # the largest scale times the largest number of NVFP4: what MLX divides its own by


def settings_of(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The config's entry on quantization, or None; ConfigError when it is no object."""
    for key in SETTINGS_KEYS:
        found = config.get(key)
        if found is not None and not isinstance(found, Mapping):
            raise refused(config, f"{key} {found!r}: expected an object")
        if found:
            return found
    return None


def method_of(settings: Mapping[str, Any] | None) -> str | None:
    """The `quant_method` that the settings name, None for MLX's own and for none; ConfigError when it is no name."""
    if settings is None:
        return None
    # bitsandbytes once named itself by its flags alone.
    flagged = "bitsandbytes" if {"load_in_4bit", "load_in_8bit"} & settings.keys() else None
    method = settings.get("quant_method") or flagged
    if method is not None and not isinstance(method, str):
        raise refused(settings, f"quant_method {method!r}: expected a name")
    return method


def check_method(config: Mapping[str, Any], registry: Registry) -> None:
    """ConfigError when the config names a quantization method that is not implemented."""
    settings = settings_of(config)
    method = method_of(settings)
    if settings is None or method is None or registry.table(QuantizedFormat).get(method) is not None:
        return
    names = ", ".join(sorted(registry.table(QuantizedFormat)))
    source = settings if isinstance(settings, QuantizationSettings) else config
    instead = "zoo convert -q 4 quantizes the model that it was made from"
    raise refused(source, f"quant_method {method!r} cannot be loaded; known: MLX's own, {names}; {instead}")


def gather(
    tensors: Tensors,
    config: Mapping[str, Any],
    registry: Registry,
    dtype: mx.Dtype | None = None,
) -> Tensors:
    """The same tensors, those of each quantized matrix gathered to one `QuantizedMatrix` under the name of its weight.

    Matrices that cannot be packed are arrays, of `dtype` where one is given. `registry` has the formats.
    """
    settings = settings_of(config)
    method = method_of(settings)
    format = registry.table(QuantizedFormat).get(method) if method is not None else None
    marked = next((name for name in tensors.arrays if name.endswith(MARKS)), None)
    if marked is not None and method is None:
        keys = " or ".join(SETTINGS_KEYS[1:])
        raise CheckpointError(
            f"{marked} is of a quantized matrix, but {origin_of(config).name} has no {keys}"
        )
    if format is not None and format.target is not None:
        try:
            tensors = format.load()(tensors, settings, dtype)
            if not isinstance(tensors, Tensors):
                raise PluginError(f"{format.target} gave {type(tensors).__name__}, not Tensors")
        except RuntimeError as error:  # some read what a shape depends on
            raise CheckpointError(f"the weights cannot be read: {error}") from error
    tensors = _with_plain_fp8(gather_mlx(tensors, ExpectedQuantization(config)), dtype)
    if dtype is None:
        return tensors
    # Cast now, so that what a weight rule has to unpack is unpacked exactly.
    packed = {name: array for name, array in tensors.arrays.items() if isinstance(array, QuantizedMatrix)}
    cast = {name: matrix.astype(dtype) for name, matrix in packed.items()}
    return replace(tensors, arrays=tensors.arrays | cast)


def _with_plain_fp8(tensors: Tensors, dtype: mx.Dtype | None) -> Tensors:
    """The same tensors, those of E4M3 that no format took as floats: weights that were cast, without a scale."""
    plain = {
        name: mx.from_fp8(array, dtype or mx.bfloat16)
        for name, array in tensors.arrays.items()
        if tensors.dtypes.get(name) == "F8_E4M3" and isinstance(array, mx.array) and array.dtype == mx.uint8
    }
    return replace(tensors, arrays=tensors.arrays | plain)


class ExpectedQuantization:
    """The quantization that an MLX config.json gives each matrix: one for all, and others by path.

    A path is a name in the checkpoint or that of a parameter, without its ".weight".
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        settings = settings_of(config)
        if method_of(settings) is not None:
            settings = None  # another's format
        self.origin = origin_of(config)
        self.all = self._spec(settings, "quantization") if settings else None
        self.given = settings is not None
        self.paths: dict[str, QuantizationSpec | None] = {}
        for path, value in (settings or {}).items():
            if isinstance(value, Mapping):
                self.paths[path] = self._spec(value, path)
            elif isinstance(value, bool) and path not in FLAGS:
                self.paths[path] = self.all if value else None

    def of(self, *names: str) -> QuantizationSpec | None:
        """The quantization of the matrix of these names; None where the config leaves it unquantized."""
        return next((self.paths[name] for name in names if name in self.paths), self.all)

    def _spec(self, settings: Mapping[str, Any], where: str) -> QuantizationSpec:
        """The quantization of a config's entry; ConfigError naming what in it is unknown."""
        mode, modes = settings.get("mode") or "affine", ("affine", *FLOAT_MODES)
        if mode not in modes:
            raise ConfigError(f"{self.origin.name}: {where}: mode {mode!r} is not one of {', '.join(modes)}")
        affine = mode == "affine"
        bits, group_size = (4, 64) if affine else FLOAT_MODES[mode]
        bits, group_size = settings.get("bits") or bits, settings.get("group_size") or group_size
        allowed = (AFFINE_BITS, AFFINE_GROUPS) if affine else [(size,) for size in FLOAT_MODES[mode]]
        for name, value, choices in zip(("bits", "group_size"), (bits, group_size), allowed, strict=True):
            if type(value) is not int or value not in choices:
                known = ", ".join(map(str, choices))
                raise ConfigError(f"{self.origin.name}: {where}: {name} {value!r} is not one of {known}")
        return QuantizationSpec(bits, group_size, mode)


FLAGS = ("quantize_activations", "desc_act", "sym")  # settings that are no path of a matrix


def gather_mlx(tensors: Tensors, expected: ExpectedQuantization | None = None) -> Tensors:
    """MLX's layout: `X.weight` of words, `X.scales` and, for affine ones, `X.biases`; `X.global_scale` for some."""
    expected, arrays = expected or ExpectedQuantization({}), dict(tensors.arrays)
    for name in [name for name in arrays if name.endswith(".scales")]:
        prefix = name.removesuffix(".scales")
        weight, scales = arrays.get(f"{prefix}.weight"), arrays[name]
        if isinstance(weight, QuantizedMatrix) or weight is None or weight.dtype != mx.uint32:
            continue
        biases, scale = arrays.get(f"{prefix}.biases"), arrays.get(f"{prefix}.global_scale")
        _check_parts(prefix, weight, scales, biases)
        if scale is not None:
            if scale.size != math.prod(weight.shape[:-2]) or not is_float(scale):
                shape = tuple(scale.shape)
                raise CheckpointError(f"{prefix}: global_scale {shape} is not one float a matrix")
            # MLX's is the largest magnitude that the two scales and the format can make.
            scale = (scale.astype(mx.float32) / GLOBAL_SCALE).reshape(*weight.shape[:-2], 1)
        words, groups = weight.shape[-1], scales.shape[-1]
        possible = possible_specs(words, groups, biases is not None)
        if not possible:
            row = f"{words} words and {groups} scales a row"
            raise CheckpointError(f"{prefix}: {row} are no known quantization")
        # What the config names where the shapes allow it, else the first that they do allow, of four bits before others.
        named = expected.of(prefix)
        guess = named if named in possible else min(possible, key=lambda quantization: quantization.bits != 4)
        for part in ("weight", "scales", "biases", "global_scale"):
            arrays.pop(f"{prefix}.{part}", None)
        matrix = QuantizedMatrix(f"{prefix}.weight", weight, scales, biases, guess, scale)
        arrays[matrix.name] = replace(matrix, dequantized=tensors.dequantized)
    return replace(tensors, arrays=arrays)


def _check_parts(name: str, weight: mx.array, scales: mx.array, biases: mx.array | None) -> None:
    """CheckpointError unless the parts of one matrix have shapes and types that belong together."""
    floats = scales.dtype != mx.uint8
    if floats != (biases is not None) or (floats and not is_float(scales)):
        beside = "without biases" if biases is None else "with biases"
        raise CheckpointError(f"{name}: scales of {scales.dtype} {beside} are no quantization")
    if biases is not None and biases.shape != scales.shape:
        raise CheckpointError(f"{name}: scales {tuple(scales.shape)} but biases {tuple(biases.shape)}")
    if weight.ndim < 2 or weight.shape[:-1] != scales.shape[:-1] or 0 in (*weight.shape, *scales.shape):
        shapes = f"{tuple(weight.shape)} and {tuple(scales.shape)}"
        raise CheckpointError(f"{name}: weight and scales {shapes} are not of one matrix")


def warn_of_differences(
    expected: ExpectedQuantization, tensors: Tensors, parameters: Mapping[str, Any]
) -> None:
    """Warn in one line where the config and the matrices differ, as the model has them or else the checkpoint."""
    if not expected.given:
        return
    resolved = {t.name: (path, t) for path, t in parameters.items() if isinstance(t, QuantizedMatrix)}
    differ = []
    for name, tensor in tensors.arrays.items():
        path, final = resolved.get(name, (name, tensor))
        names = [text.removesuffix(".weight") for text in (name, path)]
        found = final.quantization if isinstance(final, QuantizedMatrix) else None
        named = found is not None or any(name in expected.paths for name in names)
        described = expected.of(*names) if named else None
        if described != found:
            differ.append((names[0], described or "not quantized", found or "not quantized"))
    if differ:
        name, said, are = differ[0]
        more = f" (and {len(differ) - 1} more)" if len(differ) > 1 else ""
        warn(f"{expected.origin.name} says of {name}: {said}; its tensors: {are}{more}. The tensors decide")


def warn_of_dequantized(names: Collection[str]) -> None:
    """Warn of the matrices that had to be dequantized."""
    if names:
        more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        warn(f"{min(names)}{more}: cannot stay packed without loss, dequantized")


def is_mlx(name: str, tensor: QuantizedMatrix) -> bool:
    """Whether MLX's layout can hold all parts of a packed matrix: a second scale only for experts in NVFP4."""
    if not name.endswith(".weight") or tensor.permutation is not None or tensor.swapped:
        return False
    scale, experts = tensor.global_scale, tensor.quantization.mode == "nvfp4" and tensor.ndim == 3
    return scale is None or (experts and scale.shape[-1] == 1)


def with_quantization(config: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The config with the quantization of these tensors instead of its own: the commonest one, then the exceptions.

    Twice, as `quantization` and as `quantization_config`: programs differ in which they read.
    """
    config = {k: v for k, v in config.items() if k not in SETTINGS_KEYS}
    packed = {n.removesuffix(".weight"): t for n, t in tensors.items() if isinstance(t, QuantizedMatrix)}
    if packed:
        counts = Counter(tensor.quantization for tensor in packed.values())
        common = counts.most_common(1)[0][0]
        others = {p: t.quantization.as_json() for p, t in packed.items() if t.quantization != common}
        config["quantization"] = config["quantization_config"] = common.as_json() | others
    return config
