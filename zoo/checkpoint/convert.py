"""Conversion of any checkpoint to a new folder in another layout, dtype or quantization, a layer at a time.

Nothing is read before it is written: parameters are found and renamed by the weight rules, packed, renamed back, and
each is then evaluated for the shard that it goes to.

`save` and `write` make a folder that other programs load: weights in shards with an index, and a config.json. Tensors are
evaluated one by one and forgotten once their shard is written, so that a model which was never read whole is never held
whole. Each file is written beside its place and then moved there.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import mlx.core as mx
import mlx.nn as nn

from zoo.architecture import Architecture
from zoo.checkpoint.adapter import fuse, open_adapter
from zoo.checkpoint.calibration import Calibration, CalibrationTask, calibrated
from zoo.checkpoint.finite import evaluate
from zoo.checkpoint.open import Opened, Report, open_model
from zoo.checkpoint.parameters import (
    Choice,
    export,
    mixed,
    parse_quantization,
    quantized,
    renamed,
)
from zoo.checkpoint.quantized_matrix import QuantizationSpec, QuantizedMatrix, is_float
from zoo.checkpoint.quantized_tensors import GLOBAL_SCALE, is_mlx, warn_of_dequantized, with_quantization
from zoo.checkpoint.requantized import requantizations
from zoo.checkpoint.safetensors import INDEX, SINGLE
from zoo.checkpoint.source import suffixes_of
from zoo.errors import PluginError, SourceError, ZooError, deferred_warnings
from zoo.files.writing import new_folder, replacing, write_json
from zoo.frozen import Frozen, frozen
from zoo.host.registry import Registry, default_registry
from zoo.host.resolve import WRITER
from zoo.recipe import Model
from zoo.recipe.rope import by_layer_type
from zoo.runtime import DTYPES

LAYOUTS = {"mlx": "mlx", "hf": "pt"}  # and what a file's metadata calls each
SHARD = 5 * 10**9  # bytes, as on the hub
PIECE = 2**26  # bytes written at once


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
    out, registry = Path(out).expanduser(), registry or default_registry()
    _check_options(quantize, group_size, recipe, dtype, layout)
    if calibration is not None:
        calibration.check(
            registry, packs=quantize not in (None, "none") or recipe is not None, adapter=adapter
        )
    _check_folder(out, registry)
    asked = parse_quantization(quantize, group_size) if quantize not in (None, "none") else None
    floats = getattr(mx, dtype) if dtype else None
    how: dict[str, Any] = dict(architecture=architecture, revision=revision, repack=repack, registry=registry)
    opened = open_model(source, floats=floats, **how)
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
        specs = requantizations(opened, asked, choices, layout, group_size is None, floats)
    given: dict[str, Any] = {}
    if calibration is not None:
        given, specs = calibrated(CalibrationTask(opened, calibration, specs, floats), registry)
    unpack = quantize == "none" or layout == "hf"
    converted = partial(_converted, opened, layout, floats, unpack, updates, given, specs)
    tensors, read, count = _by_layer(opened, floats, converted)
    config = complete_config(opened) if layout == "mlx" else effective_config(opened)
    config = {**config, **signature_of(found, checkpoint.registry)}
    options = SaveOptions(layout, floats, shard, report, partial(opened.not_finite, dtype), read)
    with new_folder(out) as part:
        sizes = write(part, tensors, config, options)
        checkpoint.save_auxiliary_files(part)
    checkpoint.warn_of_losses(floats)
    return Converted(out, sum(sizes.values()), count)


Read = Callable[[Collection[str]], Iterator[dict[str, Any]]]


def _converted(
    opened: Opened,
    layout: str,
    floats: mx.Dtype | None,
    unpack: bool,
    updates: Mapping[str, Any],
    given: Mapping[str, Any],
    specs: Mapping[str, QuantizationSpec],
    parameters: dict[str, Any],
) -> dict[str, Any]:
    """The tensors, unevaluated, that some parameters become: with an adapter's `updates`, quantized by `specs`.

    Those `given` take the place of the checkpoint's. Where the result is unpacked, or packed by `specs`, changes are added to
    the numbers of packed matrices, so that the sum is rounded once at most.
    """
    for path, tensor in parameters.items():
        if isinstance(tensor, QuantizedMatrix) and (unpack or (path in updates and path in specs)):
            parameters[path] = tensor.numbers(floats)
    fuse(parameters, {path: updates[path] for path in parameters if path in updates})
    parameters |= {path: given[path] for path in parameters if path in given}
    parameters = quantized(parameters, {path: specs[path] for path in parameters if path in specs})
    return renamed(parameters, opened.checkpoint.architecture, opened.recipe, layout)


def _by_layer(
    opened: Opened, floats: mx.Dtype | None, converted: Callable[[dict[str, Any]], dict[str, Any]]
) -> tuple[dict[str, Any], Read | None, int]:
    """The tensors made of all parameters, what reads those of some names a layer at a time, and the number of parameters.

    A lazy checkpoint's tensors need no such reading. `opened` then holds no parameters: only the tensors do.
    """
    tensors: dict[str, Any] = {}
    layers: list[tuple[set[str], Callable[[], dict[str, Any]]]] = []  # the names of each, and what reads it
    count = 0
    for parameters, read_layer in opened.layers(floats):
        count += sum(math.prod(parameter.shape) for parameter in parameters.values())
        group = converted(dict(parameters))
        layers.append((set(group), read_layer))
        tensors |= group
    opened.parameters = {}

    def read(names: Collection[str]) -> Iterator[dict[str, Any]]:
        return (converted(dict(read_layer())) for group, read_layer in layers if group.intersection(names))

    return tensors, None if opened.checkpoint.lazy else read, count


def _check_options(
    quantize: str | None, group_size: int | None, recipe: str | None, dtype: str | None, layout: str
) -> None:
    """ZooError for options of `convert` that are unknown, or exclude each other."""
    if layout not in LAYOUTS:
        raise ZooError(f"`layout` {layout!r} is not one of {', '.join(LAYOUTS)}")
    if dtype is not None and dtype not in DTYPES:
        raise ZooError(f"`dtype` {dtype!r} is not one of {', '.join(DTYPES)}")
    packs = recipe is not None or quantize not in (None, "none")
    if layout == "hf" and packs:
        raise ZooError("quantized matrices have no place in `layout` hf: choose `layout` mlx")
    if recipe is not None and quantize is not None:
        raise ZooError("`recipe` says how many bits there are: leave `quantize` out")
    if group_size is not None and not packs:
        raise ZooError("`group_size` says how `quantize` packs: give that too")


def _check_folder(out: Path, registry: Registry) -> None:
    """SourceError for a folder that already exists, or has the name of a file of weights."""
    if out.name.endswith(suffixes_of(registry)):
        kind = out.suffix[1:].upper()
        raise SourceError(f"{out}: {kind} files are read, not written; give the name of a folder to write")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
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


@frozen()
class SaveOptions(Frozen):
    """Options of `write`: the `layout` of names, the `dtype` of floats, the most bytes of a `shard`.

    Layout "hf" holds no packed matrices: they are dequantized. `report` is called with the bytes computed and written,
    and with how many of both there will be. `broken` makes the error that is raised for a tensor with NaN or infinity in
    it, by its name; without it there is no such check. `read` gives the tensors of some names in groups, where those
    given to `write` have only their shapes and dtypes.
    """

    layout: str = "hf"
    dtype: mx.Dtype | None = None
    shard: int = SHARD
    report: Callable[[int, int], None] | None = None
    broken: Callable[[str], Exception] | None = None
    read: Read | None = None


DEFAULTS = SaveOptions()


def write(
    folder: Path, tensors: dict[str, Any], config: Mapping[str, Any], options: SaveOptions = DEFAULTS
) -> dict[str, int]:
    """Write `tensors`, emptied on the way, in shards, and `config` with what they are. Returns the bytes of each."""
    folder.mkdir(parents=True, exist_ok=True)
    if options.layout == "mlx":
        dequantized = [n for n, t in tensors.items() if isinstance(t, QuantizedMatrix) and not is_mlx(n, t)]
        warn_of_dequantized(dequantized)
    stored = {name: _stored(name, tensors.pop(name), options) for name in list(tensors)}
    described = with_quantization(config, stored)
    sizes = {name: sum(a.nbytes for a in _arrays(name, t).values()) for name, t in stored.items()}
    floats = Counter[str]()
    for dtype, nbytes in ((a.dtype, a.nbytes) for n, t in stored.items() for a in _arrays(n, t).values()):
        if mx.issubdtype(dtype, mx.floating):
            floats[str(dtype).removeprefix("mlx.core.")] += nbytes
    shards = list(_shards(sizes, options.shard))
    done, total = 0, 2 * sum(sizes.values())

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if options.report is not None:
            options.report(done, total)

    files: dict[str, str] = {}
    for number, names in enumerate(shards, 1):
        file = SINGLE if len(shards) == 1 else f"model-{number:05}-of-{len(shards):05}.safetensors"
        chosen: dict[str, mx.array] = {}
        held = {name: stored.pop(name) for name in names}
        for group in [held] if options.read is None else options.read(names):
            for name in list(group):
                tensor = group.pop(name)
                if name in names:
                    chosen |= _evaluated(name, _stored(name, tensor, options), options)
                    advance(sizes[name])
        with replacing(folder / file) as part, part.open("wb") as opened:
            mx.save_safetensors(
                _ChunkedFile(opened, advance), chosen, metadata={"format": LAYOUTS[options.layout]}
            )
        files |= dict.fromkeys(chosen, file)
        del chosen
        mx.clear_cache()
    if len(shards) > 1:
        index = {"metadata": {"total_size": sum(sizes.values())}, "weight_map": dict(sorted(files.items()))}
        write_json(folder / INDEX, index)
    described["torch_dtype"] = floats.most_common(1)[0][0] if floats else "float32"
    write_json(folder / "config.json", described)
    return sizes


def _stored(name: str, tensor: Any, options: SaveOptions) -> Any:
    """A tensor as it is stored, unevaluated: packed where the layout holds it so, floats cast."""
    if isinstance(tensor, QuantizedMatrix) and not (options.layout == "mlx" and is_mlx(name, tensor)):
        return tensor.numbers(options.dtype)
    return tensor.astype(options.dtype) if options.dtype is not None and is_float(tensor) else tensor


def _arrays(name: str, tensor: mx.array | QuantizedMatrix) -> dict[str, mx.array]:
    """The arrays that a tensor is stored as, by name."""
    if not isinstance(tensor, QuantizedMatrix):
        return {name: tensor}
    parts = tensor.parts()
    if "global_scale" in parts:
        parts["global_scale"] = parts["global_scale"].squeeze(-1) * GLOBAL_SCALE
    return {name.removesuffix("weight") + part: array for part, array in parts.items()}


def _evaluated(name: str, tensor: Any, options: SaveOptions) -> dict[str, mx.array]:
    """The arrays of a tensor, evaluated; what `broken` gives is raised where it holds NaN or infinity."""
    arrays = _arrays(name, tensor)
    if options.broken is not None and evaluate({name: tensor}) is not None:
        # A packed matrix is named by its scales.
        raise options.broken(next((part for part in arrays if part.endswith(".scales")), name))
    mx.eval(arrays)
    return arrays


class _ChunkedFile:
    """A file that is written in pieces, so that Ctrl-C takes effect between two of them."""

    def __init__(self, file: BinaryIO, wrote: Callable[[int], None]) -> None:
        self._file, self._wrote = file, wrote

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        for start in range(0, len(view), PIECE):
            self._wrote(self._file.write(view[start : start + PIECE]))
        return len(view)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _shards(sizes: Mapping[str, int], most: int) -> Iterator[list[str]]:
    """The names in order, in groups of at most `most` bytes; a larger tensor is a group of its own."""
    group: list[str] = []
    room = most
    for name, size in sizes.items():
        if group and size > room:
            yield group
            group, room = [], most
        group.append(name)
        room -= size
    yield group
