"""The masks, caches and passed values that the layers of a recipe need, from their specs. Imports no mlx."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from zoo.errors import RecipeError
from zoo.frozen import Frozen, frozen
from zoo.recipe.spec import Spec


@frozen()
class Memory(Frozen):
    """A part of a layer that gets a mask and a cache: its path within the layer ("" for the whole) and its window.

    `window` None: everything. One that is `recurrent` has a state instead of keys.
    """

    path: str
    window: int | None
    recurrent: bool


@frozen()
class Needs(Frozen):
    """The masks, caches and values that a layer takes, and the values it gives: its spec's declarations, read once.

    `caches` are the paths of the parts that make one. Without any, the layer still gets a mask.
    """

    memories: tuple[Memory, ...]
    caches: tuple[str, ...]
    by_part: bool
    gives: tuple[str, ...]
    takes: tuple[str, ...]


def needs(layer: Spec) -> Needs:
    """The needs of the layer of this spec."""
    parts = dict(_remembering(layer, ""))
    found = tuple(_memory(path, part) for path, part in parts.items())
    if not layer.by_part:
        found = (_memory("", layer),)
    return Needs(found, tuple(parts), layer.by_part, tuple(layer.gives), tuple(layer.takes))


def _memory(path: str, spec: Spec) -> Memory:
    below = [part for _, part in spec.walk()]
    window = next((part.attention_window for part in below if part.attention_window), None)
    return Memory(path, window, any(part.recurrent for part in below))


def _remembering(spec: Spec, path: str) -> Iterator[tuple[str, Spec]]:
    for below, part in spec.children(path):
        if part.remembers:
            yield below, part
        else:
            yield from _remembering(part, below)


def kv_widths(spec: Spec, dim: int, path: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """The parts below a spec that say the widths of the keys and values they cache, by their paths."""
    for name, value in spec.parts():
        width = spec.width(name, dim)
        for index, part in enumerate(value if isinstance(value, tuple) else (value,)):
            below = f"{path}.{name}.{index}" if isinstance(value, tuple) else f"{path}.{name}"
            widths = part.kv_widths(width) if part.remembers else None
            if widths is not None:
                yield below, widths
            elif not part.remembers:
                yield from kv_widths(part, width, below)


def check_layers(layers: Iterable[Spec], given: Iterable[str] = (), path: str = "layers") -> None:
    """RecipeError, naming it, for a part whose cache or values its layer does not hand to it.

    `given` are the names of the values that are there before the first layer.
    """
    known = set(given)
    fit: set[int] = set()  # most layers are one and the same spec
    for index, layer in enumerate(layers):
        where = f"{path}.{index}"
        if id(layer) not in fit:
            _check_parts(layer, where)
            fit.add(id(layer))
        for name in layer.takes:
            if name not in known:
                raise RecipeError(f"{where}: takes {name!r}, which no earlier layer gives")
        known.update(layer.gives)


def _check_parts(layer: Spec, where: str) -> None:
    for path, _ in _remembering(layer, "") if layer.by_part else ():
        if "." in path and not path.rpartition(".")[2].isdigit():
            raise RecipeError(
                f"{where}.{path}: has a cache, which {layer.block()} hands to parts of its own only"
            )
    for path, part in layer.walk():
        for what, names in (("gives", part.gives), ("takes", part.takes)):
            for name in names:
                if name not in getattr(layer, what):
                    raise RecipeError(
                        f"{where}.{path}: {what} {name!r}, which {layer.block()} does not hand on"
                    )


def union(*parts: Any) -> tuple[str, ...]:
    """All names of several tuples, each once, in order."""
    return tuple(dict.fromkeys(name for names in parts for name in names))
