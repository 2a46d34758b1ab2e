"""Writes tensors as a folder that other programs load: shards of safetensors with an index, and a config.json.

Tensors are evaluated one by one and forgotten once their shard is written, so that a model which was never read whole is
never held whole. Each file is written beside its place and then moved there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import mlx.core as mx

from zoo.checkpoint.finite import evaluate
from zoo.checkpoint.quantized_matrix import QuantizedMatrix, is_float
from zoo.checkpoint.quantized_tensors import GLOBAL_SCALE, is_mlx, warn_of_dequantized, with_quantization
from zoo.checkpoint.safetensors import INDEX, SINGLE
from zoo.files.writing import replacing, write_json
from zoo.frozen import Frozen, frozen

LAYOUTS = {"mlx": "mlx", "hf": "pt"}  # and what a file's metadata calls each
SHARD = 5 * 10**9  # bytes, as on the hub
PIECE = 2**26  # bytes written at once

Read = Callable[[Collection[str]], Iterator[dict[str, Any]]]


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


def _stored(
    name: str, tensor: mx.array | QuantizedMatrix, options: SaveOptions
) -> mx.array | QuantizedMatrix:
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


def _evaluated(name: str, tensor: mx.array | QuantizedMatrix, options: SaveOptions) -> dict[str, mx.array]:
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
