"""The architectures that the docs describe, by time: each by its full-size preset, beside the one it is a variant of."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from zoo.architecture.architecture import TASKS
from zoo.describe import Described, base_of, describe
from zoo.describe.differences import differences
from zoo.frozen import Frozen, frozen
from zoo.host.registry import Registry, default_registry

UNKNOWN = "9999"  # after every month
FEW = 3  # members that a period has at least, unless it is the last


@frozen()
class Member(Frozen):
    """One architecture: what of it is described, its base's name and its recipe with the same numbers, and the differences.

    `base` is "" and `base_recipe` None for one that is a variant of none. `base_origin` is what of the base it is compared
    with where that is a preset of the base's own ("llama:8b"): it cannot read this one's numbers, or has the same.
    """

    found: Described
    base: str = ""
    base_recipe: Any = None
    base_origin: str = ""
    sentences: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The architecture's name."""
        return self.found.architecture.name

    @property
    def task(self) -> str:
        """What it is for."""
        return self.found.architecture.task

    @property
    def published(self) -> str:
        """The month in which it was published, "2017-06"; "" where its record does not say."""
        return self.found.architecture.published

    @property
    def origin(self) -> str:
        """What of it is described: "llama:8b"."""
        return self.found.origin


def members(registry: Registry | None = None) -> dict[str, Member]:
    """Every architecture of a registry that has the numbers of a preset, by name, another library's left out.

    The first published comes first. Without a `registry`, those of all installed plugins.
    """
    return _members(registry or default_registry())


@cache
def _members(registry: Registry) -> dict[str, Member]:
    found = [
        member(name, registry)
        for name, architecture in registry.architectures.items()
        if any(preset.config for preset in architecture.presets)
    ]
    return {one.name: one for one in sorted(found, key=lambda one: one.published or UNKNOWN)}


def member(name: str, registry: Registry) -> Member:
    """One architecture beside its base."""
    found = describe(name, registry)
    base = base_of(found, registry)
    if base is None:
        return Member(found)
    name, recipe = base
    own = describe(name, registry)
    origin = own.origin if own.recipe == recipe else ""
    return Member(found, name, recipe, origin, tuple(differences(recipe, found.recipe, sizes=False)))


def variants(name: str, among: dict[str, Member]) -> list[Member]:
    """The members that are told as differences from the one of that name."""
    return [one for one in among.values() if one.base == name]


def roots(among: dict[str, Member]) -> list[Member]:
    """The members that no other member is the base of."""
    return [one for one in among.values() if one.base not in among]


def by_period(some: Iterable[Member]) -> dict[str, list[Member]]:
    """Members in the order of time by years, "2019" or "1997–2017" where a year has few; "" where none is known."""
    found: list[tuple[list[str], list[Member]]] = []
    for one in some:
        year = one.published[:4]
        if not found or (year != found[-1][0][-1] and (not year or len(found[-1][1]) >= FEW)):
            found.append(([year], []))
        found[-1][0].append(year)
        found[-1][1].append(one)
    return {"–".join(dict.fromkeys((years[0], years[-1]))): those for years, those in found}


def by_task(some: list[Member]) -> dict[str, list[Member]]:
    """The members of each task that any has, in the order of the tasks."""
    found = {task: [one for one in some if one.task == task] for task in TASKS}
    return {task: those for task, those in found.items() if those}
