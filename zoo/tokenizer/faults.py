"""Turns the failures of tokenizer libraries into one line that names the file.

On a damaged or absurd file the `tokenizers` library raises, or its Rust code panics.
"""

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
def naming(path: Path, fault: str) -> Iterator[None]:
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


class NamingDetokenizer:
    """A Detokenizer whose errors name the file."""

    def __init__(self, inner: Detokenizer, path: Path) -> None:
        self.inner, self.path = inner, path

    def add(self, id: int) -> str:
        with naming(self.path, f"its decoder cannot decode the id {id}"):
            return self.inner.add(id)

    def finish(self) -> str:
        with naming(self.path, "its decoder cannot end the text"):
            return self.inner.finish()


def probe(tokenizer: tokenizers.Tokenizer) -> None:
    """Use a tokenizer once, so that a file on which the library panics does so now, and not in the middle of a text."""
    for text in PROBES:
        with suppress(Exception):  # a text that the vocabulary has no tokens for
            tokenizer.encode(text)
    size = tokenizer.get_vocab_size()
    for id in range(0, size, size // 100 + 1):
        with suppress(Exception):
            tokenizer.decode([id], skip_special_tokens=False)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep a panic's message off the error stream: Rust writes it there before Python sees an exception.

    Anything else written meanwhile is shown afterwards, unless there was a panic.
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
            os.set_blocking(end, False)  # what does not fit into the pipe is lost, rather than waited for
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
