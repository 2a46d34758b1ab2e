"""Turns errors and panics of tokenizer libraries on damaged files into one line that names the file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from zoo.errors import TokenizerError
from zoo.tokenizer.detokenizer import Detokenizer
from zoo.tokenizer.settings import one_line

if TYPE_CHECKING:
    import tokenizers

PROBES = ("", "a", "Hello, world! 你好 é\n 12 😀")
_error_stream = Lock()


@contextmanager
def library_errors(path: Path, fault: str) -> Iterator[None]:
    """Turn what a library raises into a TokenizerError that names the file and the fault."""
    try:
        yield
    except TokenizerError:
        raise
    except BaseException as error:
        # A panic in Rust arrives as an exception that is no Exception; an interrupt must still get through.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise TokenizerError(f"{path}: {fault} ({one_line(error)})") from None


class GuardedDetokenizer:
    """A Detokenizer whose errors name the file."""

    def __init__(self, inner: Detokenizer, path: Path) -> None:
        self.inner, self.path = inner, path

    def add(self, id: int) -> str:
        with library_errors(self.path, f"its decoder cannot decode the id {id}"):
            return self.inner.add(id)

    def finish(self) -> str:
        with library_errors(self.path, "its decoder cannot end the text"):
            return self.inner.finish()


def probe(tokenizer: tokenizers.Tokenizer) -> None:
    """Encode and decode once, so that a file on which the library panics does so now and not during generation."""
    for text in PROBES:
        with suppress(Exception):  # a text that the vocabulary has no tokens for
            tokenizer.encode(text)
    size = tokenizer.get_vocab_size()
    for id in range(0, size, size // 100 + 1):
        with suppress(Exception):
            tokenizer.decode([id], skip_special_tokens=False)


@contextmanager
def hide_panics() -> Iterator[None]:
    """Hide the message that Rust writes to the error stream before a panic becomes a Python exception.

    Anything else written meanwhile is written afterwards, unless there was a panic.
    """
    with _error_stream:
        if sys.stderr is not None:
            sys.stderr.flush()
        try:
            before = os.dup(2)
        except OSError:  # closed
            yield
            return
        read, write = os.pipe()
        for end in (read, write):
            os.set_blocking(end, False)  # lose what does not fit into the pipe instead of waiting
        os.dup2(write, 2)
        panicked = False
        try:
            yield
        except BaseException as error:
            panicked = type(error).__name__ == "PanicException"
            raise
        finally:
            os.dup2(before, 2)
            with suppress(BlockingIOError):
                written = os.read(read, 2**16)
                if not panicked:
                    os.write(2, written)
            for end in (read, write, before):
                os.close(end)
