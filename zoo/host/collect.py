"""Collects what the hooks of one plugin give, checked: records of the right type, under hooks that exist."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Iterable
from types import FunctionType, ModuleType
from typing import Any

from zoo.architecture import API, Architecture
from zoo.errors import PluginError
from zoo.host import hookspecs
from zoo.host.kinds import KINDS, Kind

HOOKS = tuple(name for name in vars(hookspecs) if name.startswith("zoo_"))
MARK = "zoo_impl"  # the attribute that `zoo.architecture.hookimpl`, a marker of pluggy's, sets on a function


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
    return list(records.values())


def _implementations(plugin: Any) -> dict[str, list[Callable[..., Any]]]:
    """The marked functions of a plugin by the hook that they implement."""
    functions = _functions(plugin)
    found: dict[str, list[Callable[..., Any]]] = {}
    for name, function in functions.items():
        options = _options(function)
        if options is not None:
            found.setdefault(options.get("specname") or name, []).append(function)
    for hook in sorted(found):
        _check_name(hook)
        for function in found[hook]:
            _check_arguments(hook, function)
    for hook in HOOKS:
        if hook in functions and hook not in found:
            raise PluginError(f"{hook} is not marked: write @hookimpl above it")
    return found


def _functions(plugin: Any) -> dict[str, Callable[..., Any]]:
    """The functions of a module, or the methods of an object, by name."""
    if isinstance(plugin, ModuleType):
        return {name: value for name, value in vars(plugin).items() if isinstance(value, FunctionType)}
    return dict(inspect.getmembers(plugin, inspect.isroutine))


def _options(function: Callable[..., Any]) -> dict[str, Any] | None:
    """The options that a hook's marker set on a function, None for one without the mark."""
    plain = function.__func__ if inspect.ismethod(function) else function
    return vars(plain).get(MARK) if isinstance(plain, FunctionType) else None


def _check_name(hook: str) -> None:
    if hook not in HOOKS:
        from difflib import get_close_matches

        near = get_close_matches(hook, HOOKS, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(HOOKS)}"
        raise PluginError(f"there is no hook {hook}; {hint}")


def _check_arguments(hook: str, function: Callable[..., Any]) -> None:
    """PluginError when a hook's implementation has a required argument that the hook's specification lacks."""
    if isinstance(function, FunctionType) and not function.__code__.co_argcount:
        return  # most take none, and to ask for a signature takes long
    given = inspect.signature(getattr(hookspecs, hook)).parameters
    taken = inspect.signature(function).parameters
    extra = {
        name
        for name, parameter in taken.items()
        if parameter.default is parameter.empty and name not in given
    }
    if extra:
        raise PluginError(
            f"{hook}({', '.join(taken)}): Argument(s) {extra} are declared in the hookimpl but can not be found in "
            "the hookspec"
        )
