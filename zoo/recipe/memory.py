"""What the layers of a recipe remember and hand on, read off their specs. Imports no mlx."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from zoo.errors import RecipeError
from zoo.recipe.spec import Spec


@dataclass(frozen=True)
class Memory:
    """A part of a layer that gets a mask and a cache: its path within the layer, and what it sees.

    `window` None: everything. One that is `recurrent` sees no keys, but carries a state.
    """

    path: str
    window: int | None
    recurrent: bool


@dataclass(frozen=True)
class Needs:
    """What a layer has to be handed, and what it hands on: its spec's declarations, read once."""

    memories: tuple[Memory, ...]
    by_part: bool
    own_cache: bool
    gives: tuple[str, ...]
    takes: tuple[str, ...]


def needs(layer: Spec) -> Needs:
    """What the layer of this spec has to be handed."""
    return Needs(memories(layer), layer.by_part, layer.own_cache, tuple(layer.gives), tuple(layer.takes))


def memories(layer: Spec) -> tuple[Memory, ...]:
    """The mixers of a layer and what else of it carries a state, in the order of its fields."""
    return tuple(Memory(path, _window(part), _recurrent(part)) for path, part in _remembering(layer, ""))


def _remembering(spec: Spec, path: str) -> Iterator[tuple[str, Spec]]:
    for below, part in spec.children(path):
        if part.remembers:
            yield below, part
        else:
            yield from _remembering(part, below)


def _window(part: Spec) -> int | None:
    return next((p.window for _, p in part.walk() if getattr(p, "window", None)), None)  # type: ignore[attr-defined]


def _recurrent(part: Spec) -> bool:
    return any(p.recurrent for _, p in part.walk())


def check_layers(layers: Iterable[Spec], given: Iterable[str] = (), path: str = "layers") -> None:
    """RecipeError, naming it, for a part whose cache or values its layer does not know how to hand to it.

    `given` are the names of the values that are there before the first layer.
    """
    known = set(given)
    fit: set[int] = set()  # most layers are one and the same spec
    for index, layer in enumerate(layers):
        where = f"{path}.{index}"
        if id(layer) not in fit:
            _check_caches(layer, where)
            _check_values(layer, where)
            fit.add(id(layer))
        for name in layer.takes:
            if name not in known:
                raise RecipeError(f"{where}: takes {name!r}, which no earlier layer gives")
        known.update(layer.gives)


def _check_caches(layer: Spec, where: str) -> None:
    found = [memory.path for memory in memories(layer)]
    if layer.by_part:
        nested = next((name for name in found if "." in name and not name.rpartition(".")[2].isdigit()), None)
        if nested:
            raise RecipeError(
                f"{where}.{nested}: has a cache, which {layer.block()} hands to parts of its own only"
            )
    elif len(found) > 1:
        raise RecipeError(
            f"{where}: {' and '.join(found)} each have a cache, and {layer.block()} takes one (it is not `by_part`)"
        )


def _check_values(layer: Spec, where: str) -> None:
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
