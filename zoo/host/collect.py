"""Collects what the hooks of one plugin give, checked: records of the right type, under hooks that exist."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable
from types import FunctionType, ModuleType
from typing import Any

import pluggy

from zoo.architecture import API, Architecture
from zoo.architecture.fields import check_tasks
from zoo.errors import PluginError, did_you_mean
from zoo.host import hookspecs
from zoo.host.kinds import KINDS, Kind

MOST_RECORDS = 10_000  # of one hook: a bridge to a large library gives some hundreds

HOOKS = tuple(name for name in vars(hookspecs) if name.startswith("zoo_"))


class _Manager(pluggy.PluginManager):
    """A manager that looks at the functions of a module only: most of its names are of imported classes."""

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> Any:
        """pluggy's own, for what may be a hook."""
        if isinstance(plugin, ModuleType) and not isinstance(vars(plugin).get(name), FunctionType):
            return None
        return super().parse_hookimpl_opts(plugin, name)

    def parse_hookspec_opts(self, module_or_class: Any, name: str) -> Any:
        """pluggy's own, for names of hooks."""
        return super().parse_hookspec_opts(module_or_class, name) if name in HOOKS else None


class NewerContract(PluginError):
    """A record made for a later version of the contract than the running zoo has."""


def collect(plugin: Any) -> dict[str, list[Any]]:
    """All that the hooks of `plugin`, a module or object, yield, by hook; under `zoo_resolve` its functions.

    PluginError for a hook that is misspelled or unmarked, takes an argument that it is not given, yields something
    other than its records, or yields two of one name; NewerContract for a record of a later version.
    """
    implementations = _implementations(plugin)
    kinds = {kind.hook: kind for kind in KINDS}
    records: dict[str, list[Any]] = {}
    for hook in HOOKS:
        functions = implementations.get(hook, [])
        if hook not in kinds:
            records[hook] = list(functions)
        elif functions:
            records[hook] = _checked(kinds[hook], functions[0]())
    own = {architecture.task for architecture in records.get("zoo_architectures", ())}
    own &= {task for strategy in records.get("zoo_strategies", ()) for task in strategy.tasks}
    for hook, kind in kinds.items():
        for record in records.get(hook, ()):
            tasks = (record.task,) if isinstance(record, Architecture) else getattr(record, "tasks", ())
            check_tasks(f"{kind.noun} {kind.identify(record)}", tasks, own)
    return records


def _checked(kind: Kind, given: Any) -> list[Any]:
    """The records that a hook gave, each of the right type and with a name of its own."""
    if not isinstance(given, Iterable):
        raise PluginError(f"{kind.hook} gave {type(given).__name__}, not {kind.record.__name__} records")
    records: dict[str, Any] = {}
    for record in given:
        if not isinstance(record, kind.record):
            raise PluginError(
                f"{kind.hook} gave {reprlib.repr(record)}, not a record of type {kind.record.__name__}"
            )
        name = kind.identify(record)
        if name in records:
            raise PluginError(f"{kind.hook} gave two records named {name!r}")
        # Refused before the next record is made, which may fail for being of the later version too.
        if isinstance(record, Architecture) and record.api > API:
            raise NewerContract(
                f"{name} needs contract version {record.api}; this zoo has {API}: upgrade mlx-zoo"
            )
        records[name] = record
        if len(records) > MOST_RECORDS:
            raise PluginError(f"{kind.hook} gave more than {MOST_RECORDS} records")
    return list(records.values())


def _implementations(plugin: Any) -> dict[str, list[Callable[..., Any]]]:
    """The marked functions of a plugin by the hook that they implement, each checked against its specification."""
    # A manager for each plugin: one that breaks the contract leaves nothing behind, and threads share nothing.
    manager = _Manager("zoo")
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(plugin)
    except pluggy.PluginValidationError as error:
        _, *lines = str(error).splitlines()  # the first names the plugin, as the caller will
        raise PluginError(": ".join(lines).removeprefix("hookimpl definition: ")) from error
    found = {
        caller.name: [implementation.function for implementation in caller.get_hookimpls()]
        for caller in manager.get_hookcallers(plugin) or ()
    }
    for hook in sorted(found.keys() - set(HOOKS)):
        hint = did_you_mean(hook, HOOKS, f"; there are {', '.join(HOOKS)}")
        raise PluginError(f"there is no hook {hook}{hint}")
    for hook in HOOKS:
        if hook not in found and callable(getattr(plugin, hook, None)):
            raise PluginError(f"{hook} is not marked: write @hookimpl above it")
    return found
