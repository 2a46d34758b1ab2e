"""Guards against damaged and hostile tokenizer files.

Errors and panics of tokenizer libraries become one line that names the file. Limits bound how much the parts of a
`tokenizer.json` lengthen a text.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

from tokenizers import Tokenizer

from zoo.errors import TokenizerError
from zoo.tokenizer.detokenizer import Detokenizer, flat

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
        raise TokenizerError(f"{path}: {fault} ({' '.join(str(error).split())[:200]})") from None


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


def probe(tokenizer: Tokenizer) -> None:
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


MOST_PARTS = 100  # of a normalizer, pre-tokenizer or decoder; published ones have about ten
MOST_GROWTH = 10_000  # characters that one may become
MOST_WORD = 1000  # characters of a word that WordPiece looks for in its vocabulary, in the square of the time

# The most characters that one may become: the longest of Unicode's forms is U+FDFA, and UTF-8 has up to four bytes.
GROWTH = {"NFKC": 18, "NFKD": 18, "Precompiled": 18, "NFC": 3, "NFD": 4, "Lowercase": 2, "BertNormalizer": 4}
GROWTH |= {"ByteLevel": 4}


def check_growth(path: Path, tokenizer: Tokenizer) -> None:
    """TokenizerError, naming the file, for a tokenizer that may take hours or all memory for a short text."""
    for name in ("normalizer", "pre_tokenizer", "decoder"):
        part = getattr(tokenizer, name)
        parts = [] if part is None else flat(json.loads(part.__getstate__()))
        if len(parts) > MOST_PARTS:
            raise TokenizerError(f"{path}: its {name} has {len(parts)} parts, more than {MOST_PARTS}")
        if math.prod(map(_growth, parts)) > MOST_GROWTH:
            raise TokenizerError(f"{path}: its {name} may make a text over {MOST_GROWTH} times as long")
    longest = getattr(tokenizer.model, "max_input_chars_per_word", 0)
    if longest > MOST_WORD:
        raise TokenizerError(f"{path}: max_input_chars_per_word {longest} is more than {MOST_WORD}")


def _growth(part: Mapping[str, Any]) -> float:
    """The most characters that a part makes of one."""
    if part["type"] != "Replace":
        return GROWTH.get(part["type"], 1)
    replaced = len(part["pattern"].get("String", ""))  # 0 for an expression, which may match the empty text
    return max(1, len(part["content"]) / replaced if replaced else 1 + len(part["content"]))
