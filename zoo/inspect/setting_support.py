"""Which settings of generation a model follows, and by which strategies; read off the declarations of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.architecture import Architecture
from zoo.architecture.shared_settings import CACHE, SETTINGS
from zoo.frozen import Frozen, frozen
from zoo.generation.settings import Settings
from zoo.host.registry import Registry

BOUND = {"max_kv_size": 8}
BITS = {"kv_bits": 8}
# What each setting of the cache is about.
POLICIES: Mapping[str, Mapping[str, Any]] = {
    setting.name: BOUND if setting.name in ("max_kv_size", "keep") else BITS for setting in CACHE
}


@frozen()
class Obeyed(Frozen):
    """A setting: the names of the strategies that take it for a model, in their order, or why none can (`refused`)."""

    setting: str
    strategies: tuple[str, ...]
    refused: str | None = None

    def __bool__(self) -> bool:
        return bool(self.strategies)


def obeyed(architecture: Architecture, model: Any, registry: Registry) -> list[Obeyed]:
    """Every setting that the zoo or a strategy declares, and who takes it for a model of this architecture."""
    serving = {
        label: strategy
        for label, strategy in registry.strategies.items()
        if architecture.task in strategy.tasks
    }
    own = (setting.name for strategy in registry.strategies.values() for setting in strategy.own_settings)
    names = dict.fromkeys((*(setting.name for setting in SETTINGS), *own))
    found = []
    for name in names:
        takers = tuple(label for label, strategy in serving.items() if name in strategy.setting_names)
        reason = None if takers else f"`{name}`: no strategy for the task {architecture.task} takes it"
        if takers and name in POLICIES:
            reason = refused(model, POLICIES[name])
        if takers and name == "own_draft" and architecture.prediction is None:
            reason = f"`{name}`: {architecture.name} has no next-token-prediction layer"
        found.append(Obeyed(name, () if reason else takers, reason))
    return found


def refused(model: Any, settings: Mapping[str, Any]) -> str | None:
    """Why the caches of a model cannot be as these settings say; None when they can."""
    policy = Settings(**settings).policy()
    return model.refused(model.make_cache(policy), policy) if model.decodes else "it has no cache"


def table(models: Mapping[str, tuple[Architecture, Any]], registry: Registry) -> list[tuple[str, ...]]:
    """Rows of texts: the names of the models that obey alike, then each setting with who takes it for them."""
    columns: dict[tuple[Obeyed, ...], list[str]] = {}
    for name, (architecture, model) in models.items():
        found = [Obeyed(one.setting, one.strategies) for one in obeyed(architecture, model, registry)]
        columns.setdefault(tuple(found), []).append(name)
    head = ("setting", *(", ".join(names) for names in columns.values()))
    rows = [
        (cells[0].setting, *(", ".join(cell.strategies) or "refused" for cell in cells))
        for cells in zip(*columns, strict=True)
    ]
    return [head, *rows]
