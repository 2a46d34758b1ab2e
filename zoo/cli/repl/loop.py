"""The loop of a conversation: reads a line, then answers a question or runs a command."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.cli import notice
from zoo.cli.corpus_hints import model_hint, prompt_hint
from zoo.cli.generation import model_name, truncation_notice
from zoo.cli.progress import Progress, say
from zoo.cli.repl.answer_screen import AnswerScreen
from zoo.cli.repl.commands import COMMANDS, EXIT_WORDS, plain, run_command
from zoo.cli.repl.reader import LineCleared, PipeReader, TerminalReader, reader, unquoted
from zoo.errors import ZooError

if TYPE_CHECKING:
    from zoo.generation.chat.session import ChatSession, DroppedTurns

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
    repl.run(reader(repl.completions))


class Repl:
    """A conversation on this process's input and output."""

    def __init__(self, session: ChatSession) -> None:
        self.session = session
        self.over = False

    def run(self, reader: TerminalReader | PipeReader) -> None:
        """Read lines and act on them until the conversation ends."""
        interrupted = False
        while not self.over:
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
                    self.answer(question)
            elif line.strip() in EXIT_WORDS:
                return
            elif line.startswith("/"):
                run_command(self, line)
            elif line.strip():
                self.answer(line)

    def answer(self, question: str | None) -> None:
        """Print the answer to a question, or to the last one again for None. Ctrl-C stops it; the text so far stays."""
        reason = None
        try:
            with AnswerScreen() as screen, Progress("reading the prompt") as reading:
                steps = self.session.answer(question, report=reading, dropped=self.dropped)
                with closing(steps):  # type: ignore[type-var]
                    for step in steps:
                        reading.close()
                        screen.show(step)
                        reason = step.finish_reason
        except KeyboardInterrupt:
            say("(stopped)")
        except ZooError as error:
            self.refuse(error)
        if reason == "length":
            say(truncation_notice(self.session.settings, "/set max_tokens changes that, /tokens counts"))
        asked = question if reason is not None and sys.stderr.isatty() else None
        if asked and (line := prompt_hint(self.session.loaded, asked)):
            say(line)

    def dropped(self, what: DroppedTurns) -> None:
        """Print that the context was full and which turns were left out."""
        turns = "the oldest turn is" if what.turns == 1 else f"the {what.turns} oldest turns are"
        say(
            f"(the context of {what.context:,} tokens is full: {turns} left out, "
            f"{what.before:,} tokens become {what.after:,})"
        )

    def refuse(self, error: ZooError) -> None:
        """Print an error. Settings have their own names here, not those of the command's options."""
        say(f"zoo: {plain(str(error))}")

    def completions(self, line: str) -> Iterator[str]:
        """Completions of the last word of a line that begins with a slash."""
        if not line.startswith("/") or "\n" in line:
            return
        *before, word = line.split(" ")
        found: Any = ()
        if not before:
            found = (f"{name} " if command.argument else name for name, command in COMMANDS.items())
        elif before == ["/set"]:
            found = (f"{name} " for name in self.session.available_settings())
        elif before == ["/unset"]:
            found = self.session.settings
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
