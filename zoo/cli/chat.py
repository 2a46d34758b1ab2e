"""The conversation that `zoo run SOURCE` opens on a terminal."""

from __future__ import annotations

from typing import Any

import click

from zoo.cli.run import prompt_ids, steps, write
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
        answer = ""
        try:
            for step in steps(loaded, prompt_ids(loaded, messages, given), given):
                answer += step.text
                write(step.text)
        except KeyboardInterrupt:
            pass
        except PromptError as error:
            click.echo(f"zoo: {error}", err=True)
            messages.pop()
            continue
        write("\n")
        messages.append({"role": "assistant", "content": answer})
