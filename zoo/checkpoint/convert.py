"""Conversion of any checkpoint to a new folder in another layout, dtype or quantization, a layer at a time.

Nothing is read before it is written: parameters are found and renamed by the weight rules, packed, renamed back, and
each is then evaluated for the shard that it goes to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx

from zoo.checkpoint.adapter import fuse, open_adapter
from zoo.checkpoint.open import Opened, Report, open_model
from zoo.checkpoint.parameters import Choice, mixed, parse_quantization, quantized, renamed
from zoo.checkpoint.quantized_matrix import QuantizedMatrix
from zoo.checkpoint.save import SHARD, SaveOptions, signature_of, write
from zoo.checkpoint.source import suffixes_of
from zoo.errors import SourceError, ZooError, deferred_warnings
from zoo.files.writing import new_folder
from zoo.host.registry import Registry, default_registry
from zoo.recipe.rope import by_layer_type
from zoo.runtime import DTYPES
from zoo.weights import fused

LAYOUTS = ("mlx", "hf")


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
    architecture: str | None = None,
    adapter: str | Path | None = None,
    revision: str | None = None,
    repack: int | None = None,
    shard: int = SHARD,
    report: Report | None = None,
    registry: Registry | None = None,
) -> Converted:
    """Write `source` to the new folder `out`, whole or not at all. Each argument is an option of `zoo convert`.

    `quantize` is bits ("4") or a mode ("mxfp4"), "none" to unpack what is packed; `recipe` mixes two numbers of bits.
    `dtype` casts floats. Layout "mlx" loads in mlx-lm, "hf" in transformers, which holds no packed matrices: they are
    dequantized. `revision` is a hub id's branch, tag or commit. `adapter` is a folder of mlx-lm's LoRA or DoRA, to be
    made part of the weights. `repack` (4, 6 or 8) packs in so many bits what no quantization of MLX holds as a GGUF file
    has it. `report` is called as by `zoo.load`. A `ZooError` says what is impossible.

    >>> from zoo.checkpoint.convert import convert
    >>> written = convert("llama", "my-llama", quantize="4")
    >>> written.parameters, round(written.bits, 2)  # parameters, bits of each
    (1049728, 4.51)
    """
    out, registry = Path(out).expanduser(), registry or default_registry()
    _check_options(quantize, group_size, recipe, dtype, layout)
    _check_folder(out, registry)
    asked = parse_quantization(quantize, group_size) if quantize not in (None, "none") else None
    floats = getattr(mx, dtype) if dtype else None
    how: dict[str, Any] = dict(architecture=architecture, revision=revision, repack=repack, registry=registry)
    opened = open_model(source, floats=floats, **how)
    checkpoint, model, found = opened.checkpoint, opened.model, opened.checkpoint.architecture
    if layout == "hf" and found.bridged:
        raise ZooError(f"`layout` hf: of {found.name} only MLX's names are known")
    if report is not None:
        report(0, 0)
    choices: tuple[Choice, ...] = (found.quantizes or model.quantizes,)
    if recipe is not None:
        asked, more = mixed(recipe, len(opened.recipe.layers), group_size)
        choices = (more, *choices)
    updates = open_adapter(adapter, opened) if adapter is not None else {}

    def converted(parameters: dict[str, Any]) -> dict[str, Any]:
        """The tensors, unevaluated, that some parameters become."""
        if quantize == "none":
            parameters = {
                path: tensor.numbers(floats) if isinstance(tensor, QuantizedMatrix) else tensor
                for path, tensor in parameters.items()
            }
        fuse(parameters, {path: updates[path] for path in parameters if path in updates})
        if asked is not None:
            together = fused(found.layouts[layout], parameters)
            parameters = quantized(model, parameters, asked, choices, together)
        return renamed(parameters, found, opened.recipe, layout)

    tensors: dict[str, Any] = {}
    layers: list[tuple[set[str], Callable[[], dict[str, Any]]]] = []  # the names of each, and what reads it
    count = 0
    for parameters, read_layer in opened.layers(floats):
        count += sum(math.prod(parameter.shape) for parameter in parameters.values())
        group = converted(dict(parameters))
        layers.append((set(group), read_layer))
        tensors |= group
    opened.parameters = {}  # only `tensors` holds them now
    del parameters, group

    def read(names: Collection[str]) -> Iterator[dict[str, Any]]:
        """The tensors of these names, read one layer at a time."""
        return (converted(dict(read_layer())) for group, read_layer in layers if group.intersection(names))

    config = complete_config(opened) if layout == "mlx" else checkpoint.config
    config = {**config, **signature_of(found, checkpoint.registry)}
    how = dict(broken=partial(opened.not_finite, dtype), read=None if checkpoint.lazy else read)
    with new_folder(out) as part:
        sizes = write(part, tensors, config, SaveOptions(layout, floats, shard, report, **how))
        checkpoint.save_auxiliary_files(part)
    checkpoint.warn_of_losses(floats)
    return Converted(out, sum(sizes.values()), count)


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
    """SourceError for a folder that cannot be written anew."""
    if out.name.endswith(suffixes_of(registry)):
        kind = out.suffix[1:].upper()
        raise SourceError(f"{out}: {kind} files are read, not written; give the name of a folder to write")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SourceError(f"{out}: exists already")


def complete_config(opened: Opened) -> dict[str, Any]:
    """The config as mlx-lm reads it: every default written out, and RoPE in transformers 4's two keys."""
    if opened.checkpoint.architecture.bridged:
        return opened.checkpoint.config  # another library has read this very one
    # Of a key that is there, a default says what counts instead.
    config = opened.checkpoint.config | opened.defaults
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
