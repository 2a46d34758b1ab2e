"""`zoo.intervene` replaces values that a model computes, for ablation and activation patching."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import numpy as np

from zoo.errors import PromptError, did_you_mean
from zoo.generation import check_loaded
from zoo.inspect.tracing.probe import Hook, Value, hooked, values_of
from zoo.loading import Loaded

Edit = Callable[[mx.array], mx.array]


class InterventionHook(Hook):
    """Replaces values: `edits` has for each address the functions that change its value, in order."""

    def __init__(self, edits: Mapping[str, list[Edit]]) -> None:
        self.edits = edits
        self.used: set[str] = set()

    def note(self, address: str, value: mx.array, about: Value) -> mx.array:
        """The value after the edits of its address."""
        for edit in self.edits.get(address, ()):
            value = edit(value)
            self.used.add(address)
        return value


@contextmanager
def intervene(loaded: Loaded, values: Mapping[str, Any]) -> Iterator[Loaded]:
    """Replace values of `loaded` within the block.

    `values` maps an address ("layers.3.mixer.pattern", "layers.3.mixer.head.2", "layers.3") to its replacement: a number,
    an array that broadcasts to the value's shape (such as one from a `Trace`), or a function from the value to another of
    its shape. Everything that runs the model sees the replacement: `zoo.stream`, `zoo.trace`, `loaded.model`. Each pass
    computes its own values: an array for six tokens does not fit the pass that reads the seventh, but a function may return
    that pass's value unchanged. The value of one expert, "router.expert.5", is the weight of its output; the weights of the
    others stay and are not normalised again. PromptError names an address that the model does not have, one that nothing
    is computed from, and a value that does not fit.

    >>> loaded = zoo.load("llama")
    >>> tokens = mx.array([loaded.tokenizer.encode("The capital city of China is")])  # (B, T)
    >>> before = loaded.model(tokens)  # (B, T, V)
    >>> with zoo.intervene(loaded, {"layers.0.mixer.head.2": 0}):
    ...     without = loaded.model(tokens)
    >>> mx.array_equal(before, without).item()
    False
    >>> mx.array_equal(before, loaded.model(tokens)).item()
    True
    """
    check_loaded(loaded, "intervene")
    editor = InterventionHook(edits_of(loaded, values))
    with hooked(loaded.model, editor, loaded.registry):
        yield loaded
    if unused := [address for address in editor.edits if address not in editor.used]:
        warnings.warn(f"the model computed no {', '.join(unused)}: nothing was changed there", stacklevel=3)


def edits_of(loaded: Loaded, values: Mapping[str, Any]) -> dict[str, list[Edit]]:
    """The functions that change each value, by its address."""
    if not isinstance(values, Mapping):
        raise PromptError(f"`values` must map addresses to values, got {type(values).__name__}")
    known = values_of(loaded.model, loaded.registry)
    edits: dict[str, list[Edit]] = {}
    for address, wanted in values.items():
        whole, axis, index = resolve(address, known)
        if instead := known[whole].derived:
            owner = whole.rpartition(".")[0]
            raise PromptError(
                f"{address}: nothing is computed from this value; intervene in {f'{owner}.' * bool(owner)}{instead}"
            )
        edits.setdefault(whole, []).append(_edit(address, wanted, axis, index))
    return edits


def resolve(address: str, known: Mapping[str, Value]) -> tuple[str, int | None, int]:
    """The address of a value, and, for a part of it, its axis and the index there: "mixer.head.2" is one of "mixer.heads".

    PromptError, with the nearest address, for one that the model does not have.
    """
    if address in known:
        return address, None, 0
    owner, _, index = str(address).rpartition(".")
    path, _, item = owner.rpartition(".")
    for whole, value in known.items():
        named = value.item == item and whole.rpartition(".")[0] == path
        if index.isdecimal() and value.item_axis and (named or whole == owner):
            return whole, value.axes.split().index(value.item_axis), int(index)
    raise PromptError(f"the model has no value {str(address)!r}{did_you_mean(str(address), known)}")


def _edit(address: str, wanted: object, axis: int | None, index: int) -> Edit:
    def change(value: mx.array) -> mx.array:
        part = value
        if axis is not None:
            if index >= value.shape[axis]:
                raise PromptError(f"{address}: there are only {value.shape[axis]}, numbered from 0")
            part = mx.take(value, index, axis=axis)
        new = wanted(part) if callable(wanted) else wanted
        if new is part:
            return value
        new = _array(address, new)
        try:
            new = mx.broadcast_to(new.astype(value.dtype), part.shape)
        except ValueError as error:
            raise PromptError(f"{address}: a value of shape {new.shape} does not fit {part.shape}") from error
        if axis is None:
            return new
        chosen = (mx.arange(value.shape[axis]) == index).reshape([-1] + [1] * (value.ndim - axis - 1))
        return mx.where(chosen, mx.expand_dims(new, axis), value)

    return change


def _array(address: str, value: object) -> mx.array:
    if isinstance(value, mx.array):
        return value
    if isinstance(value, np.ndarray | int | float) and not isinstance(value, bool):
        return mx.array(value)
    raise PromptError(f"{address}: give a number, an array or a function, got {type(value).__name__}")
