"""Collects what the hooks of one plugin give, checked: records of the right type, under hooks that exist."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any

import pluggy

from zoo.architecture import API, Architecture
from zoo.architecture.base_record import Record
from zoo.architecture.checks import check_tasks
from zoo.errors import PluginError, did_you_mean
from zoo.host import hookspecs
from zoo.host.hookspecs import HOOKS, RECORDS

MOST_RECORDS = 10_000  # of one hook: a bridge to a large library gives some hundreds

_manager = pluggy.PluginManager("zoo")
_manager.add_hookspecs(hookspecs)
_one_at_a_time = Lock()


class NewerContract(PluginError):
    """A record made for a later version of the contract than the running zoo has."""


def collect(plugin: object) -> dict[str, list[Any]]:
    """All that the hooks of `plugin`, a module or object, yield, by hook; under `zoo_resolve` the hook's function.

    PluginError for a hook that is misspelled or unmarked, takes an argument that it is not given, yields something
    other than its records, or yields two of one name; NewerContract for a record of a later version.
    """
    records: dict[str, list[Any]] = {}
    for hook, function in _functions(plugin).items():
        records[hook] = _checked(hook, function()) if hook in RECORDS else [function]
    own = {architecture.task for architecture in records.get("zoo_architectures", ())}
    own &= {task for strategy in records.get("zoo_strategies", ()) for task in strategy.tasks}
    for hook in records.keys() & RECORDS.keys():
        for record in records[hook]:
            tasks = (record.task,) if isinstance(record, Architecture) else getattr(record, "tasks", ())
            check_tasks(record.label, tasks, own)
    return records


def _checked(hook: str, given: object) -> list[Record]:
    """The records that a hook gave, each of the right type and with a name of its own."""
    kind = RECORDS[hook]
    if not isinstance(given, Iterable):
        raise PluginError(f"{hook} gave {type(given).__name__}, not {kind.__name__} records")
    records: dict[str, Record] = {}
    for record in given:
        if not isinstance(record, kind):
            raise PluginError(f"{hook} gave {reprlib.repr(record)}, not a record of type {kind.__name__}")
        name = record.identifier
        if name in records:
            raise PluginError(f"{hook} gave two records named {name!r}")
        # Refused before the next record is made, which may fail for being of the later version too.
        if isinstance(record, Architecture) and record.api > API:
            raise NewerContract(
                f"{name} needs contract version {record.api}; this zoo has {API}: upgrade mlx-zoo"
            )
        records[name] = record
        if len(records) > MOST_RECORDS:
            raise PluginError(f"{hook} gave more than {MOST_RECORDS} records")
    return list(records.values())


def _functions(plugin: object) -> dict[str, Callable[..., Any]]:
    """The functions that implement the hooks, by name, each checked against its specification."""
    # One manager for all plugins, since parsing the specifications takes long. It holds one plugin at a time: one that
    # breaks the contract leaves nothing behind.
    with _one_at_a_time:
        try:
            _manager.register(plugin, "plugin")
            found = {
                caller.name: _with_known_arguments(implementation)
                for caller in _manager.get_hookcallers(plugin) or ()
                for implementation in caller.get_hookimpls()
            }
        except pluggy.PluginValidationError as error:
            _, *lines = str(error).splitlines()  # the first names the plugin, as the caller will
            raise PluginError(": ".join(lines).removeprefix("hookimpl definition: ")) from error
        finally:
            if _manager.is_registered(plugin):
                _manager.unregister(plugin)
    for hook in sorted(found.keys() - set(HOOKS)):
        hint = did_you_mean(hook, HOOKS, f"; there are {', '.join(HOOKS)}")
        raise PluginError(f"there is no hook {hook}{hint}")
    for hook in HOOKS:
        if hook not in found and callable(getattr(plugin, hook, None)):
            raise PluginError(f"{hook} is not marked: write @hookimpl above it")
    return {hook: found[hook] for hook in HOOKS if hook in found}


def _with_known_arguments(implementation: pluggy.HookImpl) -> Callable[..., Any]:
    """The function of a hook, called with those of the hook's arguments that it takes."""
    return lambda **given: implementation.function(*(given[name] for name in implementation.argnames))
