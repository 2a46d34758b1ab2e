"""The loop of a conversation: reads a line, then answers a question or runs a command."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.cli import notice
from zoo.cli.corpus_hints import model_hint
from zoo.cli.generation import model_name
from zoo.cli.progress import say
from zoo.cli.repl.commands import COMMANDS, EXIT_WORDS, run_command
from zoo.cli.repl.reader import LineCleared, PipeReader, TerminalReader, reader, unquoted
from zoo.cli.repl.repl import Repl

if TYPE_CHECKING:
    from zoo.generation.chat.session import ChatSession

AGAIN = "(Ctrl-C again or /exit ends)"


def converse(session: ChatSession) -> None:
    """Answer each question of the input until one of `EXIT_WORDS`, the end of the input, or Ctrl-C twice."""
    repl = Repl(session)
    what = (
        ": a conversation"
        if session.multi_turn
        else f" {'leaves the chat template out' if session.raw else 'has no chat template'}: each line is a prompt of its "
        "own, and no other is remembered"
    )
    say(f"{model_name(session.loaded)}{what}.")
    if line := model_hint(session.loaded):
        say(line)
    say("/help says what can be typed, /exit or Ctrl-D ends.")
    run(repl, reader(partial(completions, repl)))


def run(repl: Repl, reader: TerminalReader | PipeReader) -> None:
    """Read lines and act on them until the conversation ends."""
    interrupted = False
    while not repl.over:
        try:
            line = reader.read()
        except EOFError:
            return
        except (LineCleared, KeyboardInterrupt) as pressed:
            if interrupted and isinstance(pressed, KeyboardInterrupt):
                return
            say(AGAIN)
            interrupted = True
            continue
        except UnicodeDecodeError:
            notice("that line is not UTF-8 text; it was not sent")
            continue
        interrupted = False
        question = unquoted(line)
        if question is not None:
            if question.strip():
                repl.answer(question)
        elif line.strip() in EXIT_WORDS:
            return
        elif line.startswith("/"):
            run_command(repl, line)
        elif line.strip():
            repl.answer(line)


def completions(repl: Repl, line: str) -> Iterator[str]:
    """Completions of the last word of a line that begins with a slash."""
    if not line.startswith("/") or "\n" in line:
        return
    *before, word = line.split(" ")
    found: Any = ()
    if not before:
        found = (f"{name} " if command.argument else name for name, command in COMMANDS.items())
    elif before == ["/set"]:
        found = (f"{name} " for name in repl.session.available_settings())
    elif before == ["/unset"]:
        found = repl.session.settings
    elif before in (["/load"], ["/save"]):
        found = _files(word)
    yield from (name for name in found if name.startswith(word))


def _files(word: str) -> Iterator[str]:
    """The files and folders beside the path that is being typed."""
    folder = word[: word.rfind("/") + 1]
    try:
        for path in sorted(Path(folder or ".").expanduser().iterdir()):
            yield f"{folder}{path.name}{'/' if path.is_dir() else ''}"
    except (OSError, RuntimeError):
        return
