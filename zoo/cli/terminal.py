"""Output to a terminal, with control characters made visible. A pipe or a file gets text as it is."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable
from typing import Any, TextIO, cast

# C0 but tab and newline, DEL, C1; marks and controls of direction; halves of a surrogate pair.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def visible(text: str) -> str:
    r"""The text with each control character written as its escape: `\x1b`, `\u202e`."""
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


class Terminal:
    """A terminal's text stream that passes everything written to it through `visible`.

    It replaces single characters, so an escape sequence may arrive in pieces. Code that controls the terminal (rich, a
    progress bar) writes to the underlying stream, `rich_proxied_file`.
    """

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream  # the attribute by which rich finds the underlying stream

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        # rich wraps a stream in a proxy of its own while a bar is shown, unless isinstance() says that it is one
        # already; through its own proxy it would find this stream, and not the underlying one.
        proxy = sys.modules.get("rich.file_proxy")
        return proxy.FileProxy if proxy else Terminal

    def write(self, text: str) -> int:
        return self.rich_proxied_file.write(visible(text))

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def guard() -> None:
    """Wrap standard output and standard error in a `Terminal`, if they are terminals."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, Terminal) and stream.isatty():
            # Under an ASCII locale click would go around the stream to its bytes.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
            setattr(sys, name, cast(TextIO, Terminal(stream)))


def write(text: str) -> None:
    """Write text to standard output and flush it; to a file or a pipe as UTF-8 bytes."""
    if not text:
        return
    if isinstance(sys.stdout, Terminal):
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
        sys.stdout.buffer.flush()


def coloured() -> bool:
    """Whether standard output is a terminal that shows styles: neither NO_COLOR nor TERM=dumb is set."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return isinstance(sys.stdout, Terminal) and not plain


def write_styled(text: str) -> None:
    """Write text with escape sequences to the terminal. The caller passes all foreign text through `visible`."""
    stream: Any = sys.stdout
    stream.rich_proxied_file.write(text)
    stream.flush()


def write_with_bold_lines(text: str, mark: str) -> None:
    """Write text whose lines that begin with `mark` are bold where the output is `coloured`."""
    if not coloured():
        write(text)
        return
    lines = map(visible, text.splitlines())
    write_styled(
        "".join(f"\x1b[1m{line}\x1b[0m\n" if line.startswith(mark) else f"{line}\n" for line in lines)
    )


def columns(stream: TextIO | None = None) -> int | None:
    """The width of `stream` (standard output) in cells: COLUMNS, or the terminal's. None, without limit, for a pipe."""
    stream = sys.stdout if stream is None else stream
    if os.environ.get("COLUMNS", "").isdecimal() or stream.isatty():
        return max(shutil.get_terminal_size().columns, 20)
    return None
