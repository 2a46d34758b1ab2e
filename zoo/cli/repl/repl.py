"""A conversation on this process's input and output."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING

from zoo.cli.corpus_hints import prompt_hint
from zoo.cli.generation import truncation_notice
from zoo.cli.progress import Progress, say
from zoo.cli.repl.answer_screen import AnswerScreen
from zoo.errors import ZooError

if TYPE_CHECKING:
    from zoo.generation.chat.session import ChatSession, DroppedTurns


class Repl:
    """A chat session whose answers and errors are printed; `over` ends it."""

    def __init__(self, session: ChatSession) -> None:
        self.session = session
        self.over = False

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


def plain(message: str) -> str:
    """A message of the library without the backquotes around the names of settings."""
    return message.replace("`", "")
