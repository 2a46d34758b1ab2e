"""What the fields of a plugin's records may be, and what a target names. Imports no mlx."""

from __future__ import annotations

import re
import reprlib
from importlib import import_module
from typing import Any

from zoo.errors import PluginError, in_words

TASKS = ("generate", "translate", "encode", "fill-mask", "denoise")
CAUSALITIES = ("causal", "prefix", "full")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")
TARGET = re.compile(r"[\w.]+:\w+")


def checked_name(what: str, name: Any, pattern: re.Pattern[str] = NAME) -> str:
    """The name of a record; PluginError for one that the command line could not tell from something else."""
    if not isinstance(name, str) or not pattern.fullmatch(name):
        raise PluginError(f"{what} {name!r}: a name is letters, digits, '-' and '.', a letter or digit first")
    return name


def check_tuples(told: str, record: Any, fields: tuple[str, ...], kind: type) -> None:
    """PluginError unless each of these fields is None or a tuple of `kind`."""
    for name in fields:
        value = getattr(record, name)
        # None is the default of what need not be there.
        if value is not None and not (isinstance(value, tuple) and all(isinstance(v, kind) for v in value)):
            wanted = "text" if kind is str else kind.__name__
            raise PluginError(f"{told}: {name} is a tuple of {wanted}, not {reprlib.repr(value)}")


def check_tasks(told: str, record: Any) -> None:
    """PluginError unless the record's `tasks` are known ones."""
    check_among(told, record, "tasks", TASKS)


def check_among(told: str, record: Any, field: str, known: tuple[str, ...]) -> None:
    """PluginError unless a field is a tuple of known words."""
    check_tuples(told, record, (field,), str)
    if unknown := set(getattr(record, field)) - set(known):
        what = {"tasks": "task", "causalities": "causality"}[field]
        raise PluginError(f"{told}: {what} {min(unknown)!r} is not one of {', '.join(known)}")


def check_target(told: str, target: Any) -> None:
    """PluginError for a target that is not written "package.module:attribute"."""
    if not isinstance(target, str) or not TARGET.fullmatch(target):
        raise PluginError(f'{told}: expected "package.module:attribute", got {target!r}')


def import_target(target: str) -> Any:
    """What "package.module:attribute" names; PluginError when it cannot be imported."""
    package, _, attribute = target.partition(":")
    try:
        return getattr(import_module(package), attribute)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plugin's module may raise anything, or exit
        raise PluginError(f"cannot import {target}: {in_words(error)}") from error
