"""The conversation that `zoo run SOURCE` opens on a terminal."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import click

from zoo.cli.run import prompt_ids, steps
from zoo.cli.screen import Screen, write
from zoo.errors import PromptError


def converse(loaded: Any, given: dict[str, Any]) -> None:
    """Read a line, answer it, until the end of input or `/bye`. Ctrl-C ends an answer, twice the conversation."""
    import readline  # noqa: F401 (line editing for input())

    click.echo(f"{loaded.architecture.name}: type a prompt; /bye or Ctrl-D ends.", err=True)
    messages: list[dict[str, str]] = []
    while True:
        try:
            line = input(">>> ")
        except (EOFError, KeyboardInterrupt):
            write("\n")
            return
        if line.strip() == "/bye":
            return
        if not line.strip():
            continue
        messages.append({"role": "user", "content": line})
        try:
            made = steps(loaded, prompt_ids(loaded, messages, given), given)
            with Screen() as screen, suppress(KeyboardInterrupt):
                for step in made:
                    screen.show(step)
        except PromptError as error:
            click.echo(f"zoo: {error}", err=True)
            messages.pop()
            continue
        messages.append({"role": "assistant", "content": screen.text})
