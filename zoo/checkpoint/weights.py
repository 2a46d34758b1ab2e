"""Checkpoint tensors into a model's parameters, and back, by the architecture's weight rules."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from zoo import weights
from zoo.architecture import Architecture
from zoo.checkpoint.safetensors import Tensors
from zoo.errors import CheckpointError
from zoo.weights import Rule


def fill(model: Any, architecture: Architecture, recipe: Any, tensors: Tensors, dtype: Any = None) -> None:
    """Give `model` the checkpoint's weights, unread; floats are cast to `dtype` when one is given.

    CheckpointError when a tensor is left over, a parameter unfilled, a shape different, or a dtype no float.
    """
    wanted = dict(tree_flatten(model.parameters()))
    layouts = architecture.layouts
    order = sorted(layouts, key=lambda layout: layout != tensors.metadata.get("format", "hf"))
    first: list[str] | None = None
    for layout in order:
        parameters, left = weights.apply(layouts[layout], tensors.arrays, recipe, mx.concatenate)
        if fits(wanted, parameters, left):
            break
        first = first or misfits(wanted, parameters, left, layouts[layout], tensors, recipe)
    else:
        raise CheckpointError("; ".join(_summary(first or [])))
    cast = [(path, array if dtype is None else array.astype(dtype)) for path, array in parameters.items()]
    model.load_weights(cast, strict=True)


def fits(wanted: Mapping[str, Any], found: Mapping[str, Any], left: Collection[str]) -> bool:
    """Whether the parameters `found` are those `wanted`, floats of the same shapes, with no tensor left."""
    return (
        not left
        and wanted.keys() == found.keys()
        and all(wanted[path].shape == found[path].shape and _is_float(found[path]) for path in wanted)
    )


def _is_float(array: mx.array) -> bool:
    return mx.issubdtype(array.dtype, mx.floating)


def misfits(
    wanted: Mapping[str, Any],
    found: Mapping[str, Any],
    left: Iterable[str],
    rules: Sequence[Rule],
    tensors: Tensors,
    recipe: Any,
) -> list[str]:
    """What keeps the parameters `found` from being those `wanted`: one phrase each, by the tensors' names."""
    origin = {}
    for name, array in tensors.arrays.items():
        for path in weights.apply(rules, {name: array}, recipe, mx.concatenate)[0]:
            origin[path] = name
    problems = []
    for path in wanted.keys() & found.keys():
        expected, shape, dtype = tuple(wanted[path].shape), tuple(found[path].shape), found[path].dtype
        name = f"tensor {origin.get(path, path)} (for {path})"
        if expected != shape:
            problems.append(f"{name}: expected shape {expected}, found {shape}")
        elif not _is_float(found[path]):
            problems.append(
                f"{name}: dtype {tensors.dtypes.get(origin.get(path, path), dtype)} where a float belongs"
            )
    for path in wanted.keys() - found.keys():
        problems.append(
            f"missing tensor {_exported(path, wanted[path], rules, recipe)} {tuple(wanted[path].shape)}"
        )
    for path in found.keys() - wanted.keys():
        problems.append(f"unexpected tensor {origin.get(path, path)} {tuple(found[path].shape)}")
    problems += [f"unexpected tensor {name} {tuple(tensors.arrays[name].shape)}" for name in left]
    return sorted(problems)


def _exported(path: str, array: Any, rules: Sequence[Rule], recipe: Any) -> str:
    """The checkpoint's name of a parameter, with its path; the path alone for one part of a fused tensor."""
    try:
        names = list(weights.invert(rules, {path: array}, recipe, mx.concatenate)[0])
    except KeyError:
        names = []
    return f"{names[0]} (for {path})" if names else path


def _summary(problems: Sequence[str], most: int = 6) -> list[str]:
    rest = len(problems) - most
    return [*problems[:most], *([f"and {rest} more"] if rest > 0 else [])]


def export(model: Any, architecture: Architecture, recipe: Any) -> dict[str, Any]:
    """The model's parameters under their Hugging Face names and orientations."""
    parameters = dict(tree_flatten(model.parameters()))
    tensors, left = weights.invert(architecture.weights, parameters, recipe, mx.concatenate)
    if left:
        raise CheckpointError(f"{architecture.name}: no weight rule exports {', '.join(sorted(left))}")
    return dict(tensors)


def warn_of_unread(keys: Sequence[str]) -> None:
    """Say which keys of config.json nothing has read."""
    if keys:
        warnings.warn(f"config.json: unknown to this architecture, ignored: {', '.join(keys)}", stacklevel=3)
