"""What `zoo run SOURCE` opens on a terminal: a line is read, and answered."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

import click

from zoo.cli import notice
from zoo.cli.generating import Request, converses, prompt_ids, steps
from zoo.cli.progress import Progress
from zoo.cli.screen import Screen
from zoo.errors import ZooError

ENDS = ("/exit", "/quit", "/bye", "exit", "quit")
HELP = """\
/help                 this
/exit, exit, quit     end; so do /bye, Ctrl-D, and Ctrl-C twice
Ctrl-C                stop an answer, or clear the line
a space before a /    send a line that begins with one"""


def converse(loaded: Any, request: Request) -> None:
    """Read a line and answer it, until one of `ENDS`, the end of the input, or Ctrl-C twice on an empty line.

    With a chat template each answer follows from all that was said; without one every line is a prompt of its own.
    """
    remembers = converses(loaded, request)
    why = "with --raw" if request.raw else "has no chat template:"
    what = (
        "a conversation"
        if remembers
        else f"{why} each line is a prompt of its own, and no other is remembered"
    )
    click.echo(f"{loaded.architecture.name}{': ' if remembers else ' '}{what}.", err=True)
    click.echo("/help says what can be typed, /exit or Ctrl-D ends.", err=True)
    messages: list[dict[str, str]] = []
    interrupted = False
    while True:
        try:
            line = typed()
            interrupted = False
        except EOFError:
            click.echo(err=True)
            return
        except KeyboardInterrupt:
            if interrupted and not half_typed():
                click.echo(err=True)
                return
            interrupted = True
            click.echo("\n(Ctrl-C again or /exit ends)", err=True)
            continue
        except UnicodeDecodeError:
            notice("that line is not UTF-8 text; it was not sent")
            continue
        if line.strip() in ENDS:
            return
        if line.strip() == "/help":
            click.echo(HELP, err=True)
        elif line.startswith("/"):
            notice(f"{line.split()[0]} is no command and was not sent; /help lists them")
        elif line.strip():
            messages = [*(messages if remembers else ()), {"role": "user", "content": line}]
            text = answer(loaded, messages, request)
            messages = (
                [*messages, {"role": "assistant", "content": text}] if text is not None else messages[:-1]
            )


def typed() -> str:
    """The next line; the text alone goes to an output that is no terminal."""
    with suppress(ImportError):
        import readline  # noqa: F401 (line editing for input())
    if sys.stdout.isatty():
        return input(">>> ")
    click.echo(">>> ", nl=False, err=True)
    return input()


def half_typed() -> str:
    """What stood on the line that Ctrl-C left."""
    try:
        import readline
    except ImportError:
        return ""
    return readline.get_line_buffer()


def answer(loaded: Any, messages: list[dict[str, str]], request: Request) -> str | None:
    """Show the answer and give its text, as far as it came when Ctrl-C stopped it; None where there was an error."""
    screen = Screen()
    try:
        with screen, Progress("reading the prompt") as reading:
            for step in steps(loaded, prompt_ids(loaded, messages, request), request, reading):
                reading.close()
                screen.show(step)
    except KeyboardInterrupt:
        click.echo("(stopped)", err=True)
    except ZooError as error:
        notice(error)
        return None
    return screen.text
