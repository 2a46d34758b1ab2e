"""Defaults of a command's options, from environment variables and the user's configuration file.

The variable of `zoo run --max-tokens` is ZOO_RUN_MAX_TOKENS; the file has a table for each command, `[run]`, with
`max_tokens` in it. An option on the command line wins over the variable, the variable over the file, and the file over
the checkpoint.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from zoo.errors import did_you_mean

WHERE = "ZOO_CONFIG"
"""The variable with the path of the file. Without it the file is `zoo/config.toml` in the user's configuration folder."""


def config_path() -> Path:
    """The path of the configuration file. The file is optional unless ZOO_CONFIG names it."""
    if named := os.environ.get(WHERE):
        return Path(named).expanduser()
    folder = os.environ.get("XDG_CONFIG_HOME")
    return (Path(folder) if folder else Path.home() / ".config") / "zoo" / "config.toml"


def read_config(commands: Iterable[str]) -> dict[str, Any]:
    """The tables of the file, or {} without a file. UsageError for invalid TOML and for a table that is no command's."""
    path = config_path()
    if not path.exists():
        if os.environ.get(WHERE):
            raise click.UsageError(f"{WHERE} names {path}, which is not there")
        return {}
    import tomllib

    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise click.UsageError(f"{path}: cannot be read as TOML ({error})") from error
    known = tuple(commands)
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise click.UsageError(
                f"{path}: {name} is in no table: options belong to a command's table, such as [run]"
            )
        if name not in known:
            raise click.UsageError(f"{path}: [{name}] is no command{did_you_mean(name, known)}")
    return tables


def default_map(
    path: Sequence[str], command: click.Command, ctx: click.Context, tables: Mapping[str, Any]
) -> dict[str, Any]:
    """The defaults of the command at `path`, such as ("cache", "remove"), nested as click's `default_map`.

    UsageError, with the variable or the file, for an unknown option and for an invalid value.
    """
    options = {
        flag.removeprefix("--").replace("-", "_"): option
        for option in command.get_params(ctx)
        if isinstance(option, click.Option) and not option.is_eager
        for flag in option.opts
        if flag.startswith("--")
    }
    defaults: dict[str, Any] = {}
    for source, key, value in (*_of_file(path, tables), *_of_environment(path)):
        option = options.get(key)
        if option is None and isinstance(command, click.Group):
            continue  # of one of its own commands, which is not asked for
        if option is None:
            raise click.UsageError(
                f"{source}: `zoo {' '.join(path)}` has no such option{did_you_mean(key, options)}"
            )
        defaults[str(option.name)] = _value(source, option, value, ctx)
    nested = defaults
    for name in reversed(path):
        nested = {name: nested}
    return nested


def _of_file(path: Sequence[str], tables: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """The defaults of a command in the file: their place, the option's key, the value."""
    table: Any = tables
    for name in path:
        table = table.get(name, {}) if isinstance(table, dict) else {}
    for key, value in table.items() if isinstance(table, dict) else ():
        yield f"{config_path()}: {'.'.join(path)}.{key}", key.replace("-", "_"), value


def _of_environment(path: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """The defaults of a command in variables: their name, the option's key, the value. Empty variables do not count."""
    prefix = _prefix(path)
    for name, value in sorted(os.environ.items()):
        if name.startswith(prefix) and value:
            yield name, name.removeprefix(prefix).lower(), value


def variables(commands: Iterable[str]) -> list[str]:
    """The environment variables that set defaults of these commands."""
    prefixes = tuple(_prefix([name]) for name in commands)
    return sorted(name for name, value in os.environ.items() if name.startswith(prefixes) and value)


def _prefix(path: Sequence[str]) -> str:
    """The prefix of a command's variables."""
    return f"ZOO_{'_'.join(re.sub('[^a-z0-9]', '_', name.lower()) for name in path).upper()}_"


def _value(source: str, option: click.Option, value: object, ctx: click.Context) -> Any:
    """A default in the form that the option takes on the command line. UsageError, with its source, for an invalid value."""
    values = value if option.multiple and isinstance(value, list) else [value]
    texts = [item if isinstance(item, str) else json.dumps(item, default=str) for item in values]
    kind = click.BOOL if option.is_bool_flag else option.type
    try:
        checked = [kind.convert(text, option, ctx) for text in texts]
    except click.BadParameter as error:
        raise click.UsageError(f"{source}: {error.message}") from error
    if option.is_bool_flag:
        return checked[0]
    return tuple(texts) if option.multiple else texts[0]
