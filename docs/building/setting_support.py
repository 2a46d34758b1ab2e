"""Which generation settings a model supports, and by which strategies, from the declarations of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.architecture import Architecture
from zoo.architecture.settings import CACHE, GUIDANCE, SETTINGS
from zoo.frozen import Frozen, frozen
from zoo.generation.settings import Settings
from zoo.host.registry import Registry

GUIDED = tuple(setting.name for setting in GUIDANCE)
BOUND = {"max_kv_size": 8}
BITS = {"kv_bits": 8}
# Settings that show whether a model's caches follow each setting of the cache.
POLICIES: Mapping[str, Mapping[str, Any]] = {
    setting.name: BOUND if setting.name in ("max_kv_size", "keep") else BITS for setting in CACHE
}


@frozen()
class SettingSupport(Frozen):
    """A setting, and the strategies that take it for a model, in their order; `refused` says why there are none."""

    setting: str
    strategies: tuple[str, ...]
    refused: str | None = None


def setting_support(architecture: Architecture, model: Any, registry: Registry) -> list[SettingSupport]:
    """Every setting that the zoo or a strategy declares, with the strategies that take it for a model."""
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
        if takers and name in GUIDED and model.translates:
            reason = f"`{name}`: {architecture.name} translates"
        if takers and name == "own_draft" and architecture.prediction is None:
            reason = f"`{name}`: {architecture.name} has no next-token-prediction layer"
        found.append(SettingSupport(name, () if reason else takers, reason))
    return found


def refused(model: Any, settings: Mapping[str, Any]) -> str | None:
    """Why the caches of a model cannot be as these settings say; None when they can."""
    policy = Settings(**settings).policy()
    return model.refused(model.make_cache(policy), policy) if model.decodes else "it has no cache"


def table(models: Mapping[str, tuple[Architecture, Any]], registry: Registry) -> list[tuple[str, ...]]:
    """Rows of texts: the names of the models with the same support, then each setting with its strategies."""
    columns: dict[tuple[SettingSupport, ...], list[str]] = {}
    for name, (architecture, model) in models.items():
        found = [
            SettingSupport(one.setting, one.strategies)
            for one in setting_support(architecture, model, registry)
        ]
        columns.setdefault(tuple(found), []).append(name)
    head = ("setting", *(", ".join(names) for names in columns.values()))
    rows = [
        (cells[0].setting, *(", ".join(cell.strategies) or "refused" for cell in cells))
        for cells in zip(*columns, strict=True)
    ]
    return [head, *rows]
