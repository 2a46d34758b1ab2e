"""What the hooks of one plugin give, checked: records of the right type, under hooks that exist."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Callable, Iterable
from typing import Any

import pluggy

from zoo.architecture import (
    API,
    Architecture,
    Block,
    CheckpointFormat,
    Command,
    Corpus,
    Objective,
    QuantizedFormat,
    Sampler,
    Strategy,
    TokenizerFormat,
)
from zoo.errors import PluginError
from zoo.host import hookspecs

# What each collecting hook must yield, and what tells one record from another.
RECORDS: dict[str, tuple[type, Callable[[Any], str]]] = {
    "zoo_architectures": (Architecture, lambda record: record.name),
    "zoo_blocks": (Block, lambda record: record.spec.block()),
    "zoo_strategies": (Strategy, lambda record: record.name),
    "zoo_samplers": (Sampler, lambda record: record.name),
    "zoo_tokenizers": (TokenizerFormat, lambda record: record.name),
    "zoo_formats": (QuantizedFormat, lambda record: record.name),
    "zoo_checkpoints": (CheckpointFormat, lambda record: record.name),
    "zoo_corpora": (Corpus, lambda record: record.name),
    "zoo_objectives": (Objective, lambda record: record.name),
    "zoo_commands": (Command, lambda record: record.name),
}
HOOKS = tuple(name for name in vars(hookspecs) if name.startswith("zoo_"))


class NewerContract(PluginError):
    """A record made for a later version of the contract than the running zoo speaks."""


def collect(plugin: Any) -> dict[str, list[Any]]:
    """Everything that the hooks of `plugin`, a module or object, yield, by hook; under zoo_resolve its functions.

    PluginError for a hook that is misspelled or unmarked, takes what it is not given, or yields something else
    than its records, or two of one name; NewerContract for a record of a later version.
    """
    manager = pluggy.PluginManager("zoo")
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(plugin)
    except pluggy.PluginValidationError as error:
        raise PluginError(str(error).partition("hookimpl definition: ")[2].replace("\n", ": ")) from error
    _refuse_misspelled(manager, plugin)
    records: dict[str, list[Any]] = {}
    for hook in HOOKS:
        implementations = getattr(manager.hook, hook).get_hookimpls()
        if hook not in RECORDS:
            records[hook] = [implementation.function for implementation in implementations]
        elif implementations:
            records[hook] = _checked(hook, implementations[0].function())
    return records


def _checked(hook: str, given: Any) -> list[Any]:
    kind, identity = RECORDS[hook]
    if not isinstance(given, Iterable):
        raise PluginError(f"{hook} gave {type(given).__name__}, not {kind.__name__} records")
    records: dict[str, Any] = {}
    for record in given:
        if not isinstance(record, kind):
            raise PluginError(f"{hook} gave {reprlib.repr(record)}, not a record of type {kind.__name__}")
        name = identity(record)
        if name in records:
            raise PluginError(f"{hook} gave two records named {name!r}")
        # At once: what comes after may fail for being newer, too.
        if (api := getattr(record, "api", API)) > API:
            raise NewerContract(f"{name} needs contract version {api}; this zoo has {API}: upgrade mlx-zoo")
        records[name] = record
    return list(records.values())


def _refuse_misspelled(manager: pluggy.PluginManager, plugin: Any) -> None:
    marked = {caller.name for caller in manager.get_hookcallers(plugin) or ()}
    for name in sorted(marked - set(HOOKS)):
        near = difflib.get_close_matches(name, HOOKS, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(HOOKS)}"
        raise PluginError(f"there is no hook {name}; {hint}")
    for name in HOOKS:
        if name not in marked and callable(getattr(plugin, name, None)):
            raise PluginError(f"{name} is not marked: write @hookimpl above it")
