"""Quantized checkpoints: the tensors that make up one matrix become one `QuantizedMatrix` under its weight's name.

What a config.json says of the quantization is compared with the tensors, whose shapes decide.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
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
from zoo.checkpoint.quantized_matrix import QuantizationSpec, QuantizedMatrix, possible_specs
from zoo.checkpoint.safetensors import Tensors
from zoo.config import Origin
from zoo.deferred_warnings import warn
from zoo.errors import CheckpointError, ConfigError, PluginError
from zoo.files.reading import read_object
from zoo.host.registry import Registry

GLOBAL_SCALE = 448.0 * 6.0  # the largest scale times the largest number of NVFP4: what MLX divides its own by


def settings_of(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The config's entry on quantization, or None; ConfigError when it is no object."""
    for key in ("quantization", "quantization_config"):
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


def with_settings(config: dict[str, Any], folder: Path, registry: Registry) -> dict[str, Any]:
    """The config, with the quantization settings that some writers put into a file of their own, if it has none itself."""
    if settings_of(config) is not None:
        return config
    for format in registry.table(QuantizedFormat).listed().values():
        if format.settings_file is not None and (
            found := read_object(folder, format.settings_file, ConfigError)
        ):
            settings = {"quant_method": format.name, **found}
            return {
                **config,
                "quantization_config": QuantizationSettings(settings, Origin(format.settings_file)),
            }
    return config


def check_method(config: Mapping[str, Any], registry: Registry) -> None:
    """ConfigError when the config names a quantization method that is not implemented."""
    settings = settings_of(config)
    method = method_of(settings)
    if settings is None or method is None or registry.table(QuantizedFormat).get(method) is not None:
        return
    names = ", ".join(sorted(registry.table(QuantizedFormat)))
    source = settings if isinstance(settings, QuantizationSettings) else config
    raise refused(source, f"quant_method {method!r} cannot be loaded; known: MLX's own, {names}")


def gather(
    tensors: Tensors, config: Mapping[str, Any], registry: Registry, dtype: mx.Dtype | None = None
) -> Tensors:
    """The same tensors, those of each quantized matrix gathered to one `QuantizedMatrix` under the name of its weight.

    Matrices that cannot be packed are arrays, of `dtype` where one is given. `registry` has the formats.
    """
    settings = settings_of(config)
    method = method_of(settings)
    format = registry.table(QuantizedFormat).get(method) if method is not None else None
    if format is not None and format.target is not None:
        try:
            tensors = format.load()(tensors, settings, dtype)
            if not isinstance(tensors, Tensors):
                raise PluginError(f"{format.target} gave {type(tensors).__name__}, not Tensors")
        except RuntimeError as error:  # some read what a shape depends on
            raise CheckpointError(f"the weights cannot be read: {error}") from error
    tensors = gather_mlx(tensors, ExpectedQuantization(config))
    if dtype is None:
        return tensors
    # Cast now, so that what a weight rule has to unpack is unpacked exactly.
    cast = {
        name: a.astype(dtype) if isinstance(a, QuantizedMatrix) else a for name, a in tensors.arrays.items()
    }
    return replace(tensors, arrays=cast)


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
        self.paths = {
            path: self._spec(value, path)
            if isinstance(value, Mapping)
            else self.all
            if value is True
            else None
            for path, value in (settings or {}).items()
            if isinstance(value, Mapping) or (isinstance(value, bool) and path not in FLAGS)
        }

    def of(self, *names: str) -> QuantizationSpec | None:
        """The quantization of the matrix of these names; None where the config leaves it unquantized."""
        return next((self.paths[name] for name in names if name in self.paths), self.all)

    def _spec(self, settings: Mapping[str, Any], where: str) -> QuantizationSpec:
        """The quantization of a config's entry; ConfigError naming what in it is unknown."""
        mode, modes = settings.get("mode") or "affine", ("affine", *FLOAT_MODES)
        if mode not in modes:
            raise ConfigError(f"{self.origin.name}: {where}: mode {mode!r} is not one of {', '.join(modes)}")
        bits, group_size = (4, 64) if mode == "affine" else FLOAT_MODES[mode]
        bits, group_size = settings.get("bits") or bits, settings.get("group_size") or group_size
        allowed = (
            (AFFINE_BITS, AFFINE_GROUPS) if mode == "affine" else tuple((size,) for size in FLOAT_MODES[mode])
        )
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
            if scale.size != math.prod(weight.shape[:-2]) or not mx.issubdtype(scale.dtype, mx.floating):
                raise CheckpointError(
                    f"{prefix}: global_scale {tuple(scale.shape)} is not one float a matrix"
                )
            # MLX's is the largest magnitude that the two scales and the format can make.
            scale = (scale.astype(mx.float32) / GLOBAL_SCALE).reshape(*weight.shape[:-2], 1)
        guess = _guess(prefix, weight, scales, biases, expected.of(prefix))
        for part in ("weight", "scales", "biases", "global_scale"):
            arrays.pop(f"{prefix}.{part}", None)
        arrays[f"{prefix}.weight"] = QuantizedMatrix(
            f"{prefix}.weight", weight, scales, biases, guess, scale, dequantized=tensors.dequantized
        )
    return replace(tensors, arrays=arrays)


def _check_parts(name: str, weight: mx.array, scales: mx.array, biases: mx.array | None) -> None:
    """CheckpointError unless the parts of one matrix have shapes and types that belong together."""
    floats = scales.dtype != mx.uint8
    if floats != (biases is not None) or (floats and not mx.issubdtype(scales.dtype, mx.floating)):
        raise CheckpointError(
            f"{name}: scales of {scales.dtype} {'with' if biases is not None else 'without'} biases are no quantization"
        )
    if biases is not None and biases.shape != scales.shape:
        raise CheckpointError(f"{name}: scales {tuple(scales.shape)} but biases {tuple(biases.shape)}")
    if weight.ndim < 2 or weight.shape[:-1] != scales.shape[:-1] or 0 in (*weight.shape, *scales.shape):
        shapes = f"{tuple(weight.shape)} and {tuple(scales.shape)}"
        raise CheckpointError(f"{name}: weight and scales {shapes} are not of one matrix")


def _guess(
    name: str, weight: mx.array, scales: mx.array, biases: mx.array | None, expected: QuantizationSpec | None
) -> QuantizationSpec:
    """The quantization the config names where the shapes allow it, else the first that they do allow."""
    words, groups = weight.shape[-1], scales.shape[-1]
    possible = list(possible_specs(words, groups, biases is not None))
    if expected in possible:
        return expected
    if not possible:
        raise CheckpointError(f"{name}: {words} words and {groups} scales a row are no known quantization")
    return min(possible, key=lambda quantization: quantization.bits != 4)


def warn_of_differences(
    expected: ExpectedQuantization, found: Iterable[tuple[tuple[str, ...], QuantizationSpec | None]]
) -> None:
    """Warn in one line where the config and the tensors differ; `found` are a matrix's names and its quantization."""
    if not expected.given:
        return
    differ = []
    for names, quantization in found:
        described = (
            expected.of(*names)
            if quantization is not None or any(name in expected.paths for name in names)
            else None
        )
        if described != quantization:
            differ.append((names[0], described or "not quantized", quantization or "not quantized"))
    if differ:
        name, said, are = differ[0]
        more = f" (and {len(differ) - 1} more)" if len(differ) > 1 else ""
        warn(f"{expected.origin.name} says of {name}: {said}; its tensors: {are}{more}. The tensors decide")


def warn_of_dequantized(names: Collection[str]) -> None:
    """Warn of the matrices that had to be dequantized."""
    if names:
        more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        warn(f"{min(names)}{more}: cannot stay packed without loss, dequantized")
