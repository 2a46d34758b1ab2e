"""Reads questions: from a terminal with editing, history and completion, or from a pipe line by line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.cli.ranks import on_rank_0
from zoo.cli.signals import listen
from zoo.cli.terminal import Terminal
from zoo.errors import PromptError
from zoo.machine import launched

if TYPE_CHECKING:
    from prompt_toolkit.completion import CompleteEvent, Completer
    from prompt_toolkit.document import Document
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyPressEvent

PROMPT, MORE = ">>> ", "... "
QUOTES = '"""'  # begin and end a question of several lines

Completions = Callable[[str], Iterator[str]]


def is_open(text: str) -> bool:
    """Whether a text begins with `QUOTES` and has no closing ones yet."""
    text = text.strip()
    closed = len(text) >= 2 * len(QUOTES) and text.endswith(QUOTES)
    return text.startswith(QUOTES) and not closed


def unquoted(text: str) -> str | None:
    """The text between `QUOTES`; None for a text that does not begin with them."""
    text = text.strip()
    return text.removeprefix(QUOTES).removesuffix(QUOTES).strip("\n") if text.startswith(QUOTES) else None


class LineCleared(Exception):
    """Raised by Ctrl-C on a line that is not empty."""


class PipeReader:
    """Reads from a pipe or a file, without a prompt: a line, or several between `QUOTES`."""

    def read(self) -> str:
        """The next question. EOFError at the end of the input, PromptError when it is not UTF-8."""
        try:
            return self._read()
        except UnicodeDecodeError:
            raise PromptError("that line is not UTF-8 text; it was not sent") from None

    def _read(self) -> str:
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        while is_open(line) and (more := sys.stdin.readline()):
            line += more
        return line.rstrip("\n")


class RankReader:
    """Reads on rank 0, for all ranks."""

    def __init__(self, reader: TerminalReader | PipeReader) -> None:
        self._reader = reader

    def read(self) -> str:
        """The next question, or the error of the reader, on every rank."""
        return on_rank_0(self._reader.read, (EOFError, PromptError, LineCleared, KeyboardInterrupt))


class TerminalReader:
    """Reads from a terminal by prompt_toolkit; `completions` completes the last word of a line."""

    def __init__(self, completions: Completions) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.key_binding import KeyBindings
        from prompt_toolkit.output.vt100 import Vt100_Output
        from prompt_toolkit.shortcuts import CompleteStyle

        keys = KeyBindings()

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            if is_open(event.current_buffer.text):
                event.current_buffer.insert_text("\n")
            else:
                event.current_buffer.validate_and_handle()

        @keys.add("escape", "enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-c")
        def _(event: KeyPressEvent) -> None:
            event.app.exit(exception=LineCleared() if event.current_buffer.text else KeyboardInterrupt())

        # What the zoo puts around a terminal's streams shows escape sequences; this library is to send them.
        stream: Any = next((s for s in (sys.stdout, sys.stderr) if isinstance(s, Terminal)), None)
        raw = stream.rich_proxied_file if stream is not None else sys.stderr
        self._session: PromptSession[str] = PromptSession(
            PROMPT,
            multiline=True,
            prompt_continuation=lambda width, number, wrapped: "" if wrapped else MORE,
            key_bindings=keys,
            history=history(),
            completer=_completer(completions),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            output=Vt100_Output.from_pty(raw, term=os.environ.get("TERM")),
        )

    def read(self) -> str:
        """The next question. EOFError for Ctrl-D, KeyboardInterrupt or LineCleared for Ctrl-C."""
        try:
            return self._session.prompt(handle_sigint=False)
        finally:
            if (listener := listen()) is not None:
                listener.resume()


def reader(completions: Completions) -> TerminalReader | PipeReader | RankReader:
    """The reader for this process's input."""
    on_terminal = sys.stdin.isatty() and (sys.stdout.isatty() or sys.stderr.isatty())
    found = TerminalReader(completions) if on_terminal else PipeReader()
    return RankReader(found) if launched() else found


def history_path() -> Path:
    """The file of earlier questions: `zoo/history` in the user's state folder."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "zoo" / "history"


def history() -> History:
    """The earlier questions, from a file that only its owner can read; without one, those of this conversation."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    try:
        path = history_path()
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except (OSError, RuntimeError) as error:
        click.echo(f"zoo: questions are not kept: {error}", err=True)
        return InMemoryHistory()
    return FileHistory(path)


def _completer(completions: Completions) -> Completer:
    from prompt_toolkit.completion import Completer, Completion

    class LineCompleter(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
            line = document.text_before_cursor
            start = -len(line.rpartition(" ")[2])
            for word in completions(line):
                yield Completion(word, start_position=start)

    return LineCompleter()
