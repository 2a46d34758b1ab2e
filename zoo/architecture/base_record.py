"""The base of the records that plugins give, and the checks of their fields. Imports no mlx."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from zoo.errors import PluginError, contained, in_words
from zoo.frozen import Frozen, frozen

TASKS = ("generate", "translate", "encode", "fill-mask", "denoise")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")
TARGET = re.compile(r"[\w.]+:\w+")


def checked_name(what: str, name: object, pattern: re.Pattern[str] = NAME) -> str:
    """The name of a record; PluginError unless it is one that the command line can take as a name."""
    if not isinstance(name, str) or not pattern.fullmatch(name):
        raise PluginError(f"{what} {name!r}: a name is letters, digits, '-' and '.', a letter or digit first")
    return name


def check_tuples(label: str, record: object, fields: tuple[str, ...], *kinds: type) -> None:
    """Raise PluginError unless each of these fields is None or a tuple of `kinds`; `label` names the record."""
    for name in fields:
        value = getattr(record, name)
        # None is the default of a field that may be left out.
        if value is not None and not (isinstance(value, tuple) and all(isinstance(v, kinds) for v in value)):
            wanted = " or ".join("text" if kind is str else kind.__name__ for kind in kinds)
            raise PluginError(f"{label}: {name} is a tuple of {wanted}, not {reprlib.repr(value)}")


def check_tasks(label: str, tasks: Iterable[str], known: Iterable[str]) -> None:
    """Raise PluginError for a task that is none of the zoo's, nor of `known`, those of the plugin itself."""
    if unknown := set(tasks) - set(known) - set(TASKS):
        raise PluginError(
            f"{label}: task {min(unknown)!r} is not one of {', '.join(TASKS)}, "
            "nor one that the plugin has both an architecture and a strategy for"
        )


def check_target(label: str, target: object) -> None:
    """Raise PluginError for a target that is not written "package.module:attribute"."""
    if not isinstance(target, str) or not TARGET.fullmatch(target):
        raise PluginError(f'{label}: expected "package.module:attribute", got {target!r}')


def import_target(target: str) -> Any:
    """The object that "package.module:attribute" names; PluginError when it cannot be imported."""
    package, _, attribute = target.partition(":")
    try:
        with contained():
            return getattr(import_module(package), attribute)
    except Exception as error:
        raise PluginError(f"cannot import {target}: {in_words(error)}") from error


@frozen()
class Record(Frozen):
    """What a hook yields: checked when it is made. A record claims a name, its `identifier`.

    `noun` is what messages call one, `prefix` stands before its name in a list of records of all kinds. `by_name`: a
    person asks for one by its name, `choose` saying how in messages; others are found by what a folder or a recipe holds.
    `counted`: a plugin's records are listed by their number only, since each goes with a block.
    """

    noun, prefix = "record", ""
    by_name, choose = True, "ask for"
    counted = False

    @property
    def identifier(self) -> str:
        """The name that the record claims."""
        return self.name  # type: ignore[attr-defined, no-any-return]

    def load(self) -> Any:
        """The object at the record's `target`, imported now."""
        return import_target(self.target)  # type: ignore[attr-defined]

    @property
    def label(self) -> str:
        """What messages call this record: "corpus atlas"."""
        return f"{self.noun} {self.identifier}"


@frozen()
class TargetRecord(Record):
    """A record with a name, and a `target` at "package.module:attribute", imported only when it is used."""

    name: str
    target: str

    def __post_init__(self) -> None:
        checked_name(self.noun, self.name)
        check_target(self.label, self.target)
