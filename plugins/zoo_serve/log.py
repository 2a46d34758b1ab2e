"""A line for each request on the error stream. It has no prompt, no answer, no key, and no path but the endpoint's."""

from __future__ import annotations

import logging
import sys
import time
import traceback
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zoo_serve.generation import Generation


class RequestLog:
    """What is known of one request; `write` prints it."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint, self.began = endpoint, time.monotonic()
        self.status: int | None = None
        self.model: str | None = None
        self.generation: Generation | None = None
        self.error: BaseException | None = None
        self.cancelled = False

    def write(self) -> None:
        """Print the line: time, endpoint, status, and of generations the model, tokens and times."""
        parts = [time.strftime("%H:%M:%S"), self.endpoint, str(self.status)]
        if self.generation is not None:
            usage = self.generation.answer.usage
            parts += [self.generation.model.name, f"prompt={usage.prompt}", f"cached={usage.cached}"]
            parts.append(f"generated={usage.completion}")
            first = self.generation.answer.times.first_token
            if first is not None:
                parts.append(f"first={first - self.began:.3f}s")
        parts.append(f"total={time.monotonic() - self.began:.3f}s")
        if self.cancelled:
            parts.append("cancelled")
        if self.error is not None:  # the place, not the message, which may quote a prompt
            parts.append(type(self.error).__name__)
            parts += [
                f"at {last.name}:{last.lineno}"
                for last in traceback.extract_tb(self.error.__traceback__)[-1:]
            ]
        say(" ".join(parts))


def say(line: str) -> None:
    """Print a line on the error stream, if anybody still reads it. What would break or hide a part of it is escaped."""
    line = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in line)
    with suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)


@lru_cache(256)
def note(line: str) -> None:
    """Print a line, unless it was printed lately."""
    say(f"zoo: {line}")


class LineHandler(logging.Handler):
    """Prints errors of libraries, each as a line without details."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record's first line and the type of its exception."""
        kind = record.exc_info[0] if record.exc_info else None
        lines = record.getMessage().splitlines() or [""]
        say(f"zoo: {lines[0]:.200}" + (f" ({kind.__name__})" if kind else ""))

    @staticmethod
    def install(*loggers: str) -> None:
        """Have these loggers print their errors so, and nothing else."""
        for name in loggers:
            logger = logging.getLogger(name)
            logger.handlers, logger.propagate = [LineHandler(logging.ERROR)], False
