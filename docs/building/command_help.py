"""What `--help` says of a command, as data: its usage, its text and its lists of options. Imports no Sphinx."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import click

from zoo.cli.setting_options import EVERYTHING

CODE = re.compile(r"""`([^`]+)`|((?<![\w-])--?[a-z][\w-]*|<!--.*?-->|\{.*?\}|'"'|"[^"]+")""")


@dataclass
class CommandHelp:
    """The help of one command: `sections` are the titles of its lists, each with rows of an option and its meaning."""

    name: str
    usage: str
    text: list[str] = field(default_factory=list)
    sections: list[tuple[str, list[tuple[str, str]]]] = field(default_factory=list)


class Recorder(click.HelpFormatter):
    """A formatter that keeps what a command would print."""

    def __init__(self, helped: CommandHelp) -> None:
        super().__init__(width=100)
        self.helped = helped

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        self.helped.sections.append((name, []))
        yield

    def write_dl(self, rows: Any, *args: Any, **kwargs: Any) -> None:
        self.helped.sections[-1][1].extend((name, " ".join(text.split())) for name, text in rows)


def command_help(group: click.Group, path: str) -> CommandHelp:
    """The help of a command by its name, or by the names of a group and its command: "cache remove".

    KeyError for a name that there is not.
    """
    context = click.Context(group, info_name="zoo", **group.context_settings)
    command: click.Command = group
    for name in path.split():
        if not isinstance(command, click.Group):
            raise KeyError(path)
        found = command.get_command(context, name)
        if found is None:
            raise KeyError(path)
        command, context = found, click.Context(found, info_name=name, parent=context)
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    made = CommandHelp(path, usage)
    paragraphs = (command.help or "").partition("\f")[0].split("\n\n")
    made.text = [" ".join(paragraph.split()) for paragraph in paragraphs if paragraph.strip()]
    context.meta[EVERYTHING] = True
    command.format_options(context, Recorder(made))
    return made


def parts(text: str) -> Iterator[tuple[str, bool]]:
    """The parts of a help text, and whether each is code: options, JSON, comments of HTML, what is in backquotes or quotes."""
    end = 0
    for found in CODE.finditer(text):
        if found.start() > end:
            yield text[end : found.start()], False
        yield found[1] or found[2], True
        end = found.end()
    if end < len(text):
        yield text[end:], False


def paths(group: click.Group) -> list[str]:
    """The names of all commands, those of groups behind their group's."""
    context = click.Context(group, info_name="zoo", **group.context_settings)
    found = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        found.append(name)
        if isinstance(command, click.Group):
            found += [f"{name} {inner}" for inner in command.list_commands(context)]
    return found
