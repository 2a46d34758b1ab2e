"""Conversion of any checkpoint to a new folder in another layout, dtype or quantization, a layer at a time.

Nothing is read before it is written: parameters are found and renamed by the weight rules, packed, renamed back, and
each is then evaluated for the shard that it goes to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo.architecture import Architecture
from zoo.checkpoint.adapter import fuse, open_adapter
from zoo.checkpoint.calibration import Calibration, CalibrationTask, calibrated
from zoo.checkpoint.open import Opened, OpenOptions, Report, open_model
from zoo.checkpoint.parameters import (
    Choice,
    export,
    mixed,
    parse_quantization,
    quantized,
    renamed,
)
from zoo.checkpoint.quantized_matrix import QuantizationSpec, QuantizedMatrix
from zoo.checkpoint.requantized import requantizations
from zoo.checkpoint.shards import LAYOUTS, SHARD, Read, SaveOptions, write
from zoo.checkpoint.source import suffixes_of
from zoo.checkpoint.text_part import as_text_config
from zoo.errors import PluginError, SourceError, ZooError, deferred_warnings
from zoo.files.reading import names_in
from zoo.files.writing import new_folder
from zoo.frozen import frozen
from zoo.host.registry import Registry, default_registry
from zoo.host.resolve import WRITER
from zoo.recipe import Model
from zoo.recipe.rope import by_layer_type
from zoo.runtime import DTYPES


@dataclass(frozen=True)
class Converted:
    """The result of `convert`: bytes written, and bits per parameter, scales and biases included."""

    folder: Path
    bytes: int
    parameters: int

    @property
    def bits(self) -> float:
        """Bits per weight."""
        return self.bytes * 8 / self.parameters


@frozen(kw_only=True)
class ConvertOptions(OpenOptions):
    """The options of `convert`, which describes them. ZooError for those that are unknown, or exclude each other."""

    quantize: str | None = None
    group_size: int | None = None
    recipe: str | None = None
    layout: str = "mlx"
    adapter: str | Path | None = None
    calibration: Calibration | None = None
    shard: int = SHARD

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layout not in LAYOUTS:
            raise ZooError(f"`layout` {self.layout!r} is not one of {', '.join(LAYOUTS)}")
        if self.dtype is not None and self.dtype not in DTYPES:
            raise ZooError(f"`dtype` {self.dtype!r} is not one of {', '.join(DTYPES)}")
        if self.layout == "hf" and self.packs:
            raise ZooError("`layout` hf holds no quantized matrices: choose `layout` mlx")
        if self.recipe is not None and self.quantize is not None:
            raise ZooError("`recipe` says how many bits there are: leave `quantize` out")
        if self.group_size is not None and not self.packs:
            raise ZooError("`group_size` goes with `quantize`: give that, too")
        if self.calibration is not None:
            self.calibration.check(self.registry, self.packs, self.adapter)

    @property
    def packs(self) -> bool:
        """Whether matrices are packed."""
        return self.recipe is not None or self.quantize not in (None, "none")

    @property
    def unpacks(self) -> bool:
        """Whether packed matrices are unpacked."""
        return self.quantize == "none" or self.layout == "hf"


@deferred_warnings()
def convert(
    source: str | Path,
    out: str | Path,
    *,
    quantize: str | None = None,
    group_size: int | None = None,
    recipe: str | None = None,
    dtype: str | None = None,
    layout: str = "mlx",
    architecture: str | Architecture | None = None,
    adapter: str | Path | None = None,
    revision: str | None = None,
    repack: int | None = None,
    calibration: Calibration | None = None,
    shard: int = SHARD,
    report: Report | None = None,
    registry: Registry | None = None,
) -> Converted:
    """Write `source` to the new folder `out`, whole or not at all.

    It has many parameters because each is an option of `zoo convert`.

    `quantize` is bits ("4") or a mode ("mxfp4"), "none" to unpack what is packed; `recipe` mixes two numbers of bits.
    `dtype` casts floats. Layout "mlx" loads in mlx-lm, "hf" in transformers, which holds no packed matrices: they are
    dequantized. `revision` is a hub id's branch, tag or commit. `adapter` is a folder of mlx-lm's or PEFT's LoRA or DoRA, to be
    made part of the weights. `repack` (4, 6 or 8) packs in so many bits what no quantization of MLX holds as a GGUF file
    has it. `calibration` has a method read a text to round by. `report` is called as by `zoo.load`. A `ZooError` says
    what is impossible.

    >>> from zoo.checkpoint.convert import convert
    >>> written = convert("llama", "my-llama", quantize="4")
    >>> written.parameters, round(written.bits, 2)  # parameters, bits of each
    (1049728, 4.51)
    """
    out = Path(out).expanduser()
    options = ConvertOptions(
        quantize=quantize,
        group_size=group_size,
        recipe=recipe,
        dtype=dtype,
        layout=layout,
        architecture=architecture,
        adapter=adapter,
        revision=revision,
        repack=repack,
        calibration=calibration,
        shard=shard,
        report=report,
        registry=registry or default_registry(),
    )
    _check_folder(out, options.registry)
    asked = parse_quantization(quantize, group_size) if quantize not in (None, "none") else None
    opened = open_model(source, options)
    checkpoint, found = opened.checkpoint, opened.checkpoint.architecture
    if layout == "hf" and found.bridged:
        raise ZooError(f"`layout` hf: of {found.name} only MLX's names are known")
    if report is not None:
        report(0, 0)
    choices: tuple[Choice, ...] = (found.quantizes or opened.model.quantizes,)
    if recipe is not None:
        asked, more = mixed(recipe, len(opened.recipe.layers), group_size)
        choices = (more, *choices)
    updates = open_adapter(adapter, opened) if adapter is not None else {}
    specs: dict[str, QuantizationSpec] = {}
    if asked is not None:
        specs = requantizations(opened, asked, choices, layout, group_size is None)
    given: dict[str, Any] = {}
    if calibration is not None:
        given, specs = calibrated(
            CalibrationTask(opened, calibration, specs, options.floats), options.registry
        )
    tensors, read, count = Conversion(opened, options, updates, given, specs).by_layer()
    config = complete_config(opened) if layout == "mlx" else effective_config(opened)
    config = {**config, **signature_of(found, options.registry)}
    how = SaveOptions(layout, options.floats, shard, report, opened.not_finite, read)
    with new_folder(out) as part:
        sizes = write(part, tensors, config, how)
        checkpoint.save_auxiliary_files(part)
    checkpoint.warn_of_losses(options.floats)
    return Converted(out, sum(sizes.values()), count)


@dataclass(frozen=True)
class Conversion:
    """What is done to the parameters of an opened checkpoint, by path: an adapter's `updates`, quantization by `specs`.

    Those `given` take the place of the checkpoint's.
    """

    opened: Opened
    options: ConvertOptions
    updates: Mapping[str, Any]
    given: Mapping[str, Any]
    specs: Mapping[str, QuantizationSpec]

    def tensors_of(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The tensors, unevaluated, that some parameters become.

        Where the result is unpacked, or packed by `specs`, changes are added to the numbers of packed matrices, so that the
        sum is rounded once at most.
        """
        updates, given, specs = (
            {path: values[path] for path in parameters if path in values}
            for values in (self.updates, self.given, self.specs)
        )
        again = updates.keys() & specs.keys()
        unpacked = {
            path: tensor.numbers(self.options.floats)
            for path, tensor in parameters.items()
            if isinstance(tensor, QuantizedMatrix) and (self.options.unpacks or path in again)
        }
        changed = {**parameters, **unpacked}
        fuse(changed, updates)
        packed = quantized(changed | given, specs)
        return renamed(packed, self.opened.checkpoint.architecture, self.opened.recipe, self.options.layout)

    def by_layer(self) -> tuple[dict[str, Any], Read | None, int]:
        """The tensors made of all parameters, what reads those of some names a layer at a time, and the number of parameters.

        A lazy checkpoint's tensors need no such reading. `opened` then holds no parameters: only the tensors do.
        """
        tensors: dict[str, Any] = {}
        layers: list[
            tuple[set[str], Callable[[], dict[str, Any]]]
        ] = []  # the names of each, and what reads it
        count = 0
        for parameters, read_layer in self.opened.layers():
            count += sum(math.prod(parameter.shape) for parameter in parameters.values())
            group = self.tensors_of(parameters)
            layers.append((set(group), read_layer))
            tensors |= group
        self.opened.parameters = {}

        def read(names: Collection[str]) -> Iterator[dict[str, Any]]:
            return (
                self.tensors_of(read_layer()) for group, read_layer in layers if group.intersection(names)
            )

        return tensors, None if self.opened.checkpoint.lazy else read, count


def _check_folder(out: Path, registry: Registry) -> None:
    """SourceError for a folder that already exists, or has the name of a file of weights."""
    if out.name.endswith(suffixes_of(registry)):
        kind = out.suffix[1:].upper()
        raise SourceError(f"{out}: {kind} files are read, not written; give the name of a folder to write")
    if out.exists() and (not out.is_dir() or names_in(out)):
        raise SourceError(f"{out}: exists already")


def effective_config(opened: Opened) -> dict[str, Any]:
    """The config with what counts in the place of the values that do not; no key is added."""
    config = opened.config
    return config | {key: value for key, value in opened.defaults.items() if key in config}


def complete_config(opened: Opened) -> dict[str, Any]:
    """The config as mlx-lm reads it: every default written out, and RoPE in transformers 4's two keys."""
    if opened.checkpoint.architecture.bridged:
        return opened.config  # another library has read this very one
    # Of a key that is there, a default says what counts instead.
    config = opened.config | opened.defaults
    rope = config.get("rope_parameters") or {}
    if mlx_type := opened.checkpoint.architecture.mlx_type:
        if not by_layer_type(rope):
            both = {key: config[key] for key in ("rope_theta", "partial_rotary_factor") if key in config}
            config["rope_parameters"] = {"rope_type": "default", **rope, **both}
            scaled = rope.get("rope_type", "default") != "default"
            config.setdefault("rope_scaling", {**rope, "type": rope["rope_type"]} if scaled else None)
        own = mlx_type in opened.checkpoint.architecture.model_types
        return config if own else as_text_config(config, mlx_type)
    if not by_layer_type(rope):  # for which the two keys have no room
        config.pop("rope_parameters", None)
    if rope and not by_layer_type(rope):
        # What counts of these stands among the defaults, by the names that the family has for them.
        beside = ("rope_theta", "partial_rotary_factor")
        rope = {key: value for key, value in rope.items() if key not in beside}
        scaled = rope.get("rope_type", "default") != "default"
        config["rope_scaling"] = {**rope, "type": rope["rope_type"]} if scaled else None
    if "model_type" not in config and opened.checkpoint.architecture.model_types:
        config["model_type"] = opened.checkpoint.architecture.model_types[0]
    return config


def save(
    folder: Path,
    model: nn.Module,
    architecture: Architecture,
    recipe: Model,
    numbers: Mapping[str, Any],
    dtype: mx.Dtype | None = None,
    *,
    registry: Registry | None = None,
) -> None:
    """Write a model's weights and config.json; floats are cast to `dtype`, if given.

    `numbers` are those that the recipe was made from; the architecture's `model_type` is added when they have none.
    `registry` has the plugin that gave the architecture. Names and orientations are Hugging Face's, or MLX's where a layer is quantized.
    """
    packed = any("scales" in layer for _, layer in model.named_modules())
    layout = "mlx" if packed else "hf"
    tensors = export(model, architecture, recipe, layout)
    model_type = (architecture.model_types or [architecture.name])[0]
    signature = signature_of(architecture, registry or default_registry())
    write(folder, tensors, {"model_type": model_type, **numbers, **signature}, SaveOptions(layout, dtype))


def signature_of(architecture: Architecture, registry: Registry) -> dict[str, str]:
    """The entry of a config.json that names the third party's plugin it needs; empty for the zoo's own."""
    try:
        plugin = registry.plugin_of(architecture)
    except PluginError:  # an architecture that no plugin of this registry gave
        return {}
    return {} if plugin.first_party else {WRITER: plugin.label}
