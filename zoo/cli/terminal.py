"""Output to a terminal, with control characters made visible, in lines and aligned columns that fit it. A pipe or a file
gets text as it is, one line a row.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any, TextIO, cast

# C0 but tab and newline, DEL, C1; marks and controls of direction; halves of a surrogate pair.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
YES = "zoo.yes"  # the key of a click context's meta that holds `--yes`
GAP = 2  # cells between two columns
UNWRITTEN = (
    errno.EBADF,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EIO,
)  # of a stream that cannot be written
LABEL = 24  # cells within which a repeated column is not wrapped


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


def open_missing() -> None:
    """Open the null device in place of the standard streams that this process was started without.

    Otherwise the next file would get the number of such a stream, and what is written to that would go into the file. Input is
    empty, and errors are not shown. Writing output fails as on a full disk: what cannot be delivered is no success.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
            if opened == number:
                os.set_inheritable(opened, True)
            stream = open(opened, "w" if number else "r", encoding="utf-8", errors="replace")  # noqa: SIM115
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


def unwritten(error: Exception) -> str | None:
    """Why output could not be written, such as a full disk, for an error that says so. The rest of the output is dropped."""
    if not isinstance(error, OSError) or error.filename is not None or error.errno not in UNWRITTEN:
        return None
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    return error.strerror


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


def width(text: str) -> int:
    """The width of a text on a terminal in cells, where a Chinese character takes two."""
    if not text or max(text) < "\u0300":  # nothing wide, nothing that combines
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def table(
    rows: Sequence[Sequence[str]],
    head: Sequence[str] | None = None,
    *,
    repeated: int = 0,
    room: int | None = None,
) -> str:
    """Rows of texts as lines of at most `room` cells (the terminal's), texts wrapped between words.

    Where the longest words leave no room for all columns, the table is split into several. Each begins with the first
    `repeated` columns, and omits the rows that have nothing ("–") in its own. Without `repeated`, words are cut.
    """
    room = columns() if room is None else room
    lines = [[_cell(cell) for cell in row] for row in ([head, *rows] if head else rows)]
    if not lines:
        return ""
    parts = _parts(lines, repeated, room) if repeated and room is not None else [range(len(lines[0]))]
    tables = []
    for part in parts:
        chosen = [[line[column] for column in part] for line in lines]
        if len(parts) > 1:
            chosen = [line for line in chosen if set(line[repeated:]) - {"", "–"}]
        tables.append(_drawn(chosen, _fitted(chosen, room), bool(head)))
    return "\n\n".join(tables)


def wrapped(text: str, room: int | None = None, first: str = "", later: str = "") -> str:
    """A paragraph as lines of at most `room` cells (the terminal's): `first` begins the first, `later` the others."""
    room = columns() if room is None else room
    if room is None:
        return first + text
    lines = _lines(text, max(room - max(width(first), width(later)), 1))
    return "\n".join((later if number else first) + line for number, line in enumerate(lines))


def facts(parts: Sequence[str], room: int | None = None) -> str:
    """Short facts in one line, or in several of at most `room` cells (the terminal's), broken between two facts."""
    room = columns() if room is None else room
    lines: list[str] = []
    for part in parts:
        longer = f"{lines[-1]} · {part}" if lines else part
        if room is None or width(longer) <= room:
            lines[-1:] = [longer]
        else:
            lines += _lines(part, max(room, 1))
    return "\n".join(lines)


def _cell(cell: object) -> str:
    """A cell's text; on a terminal in one line, without characters that would move the next column."""
    text = str(cell)
    return text if columns() is None else visible(" ".join(text.split("\n")).replace("\t", " "))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _natural(lines: Sequence[Sequence[str]]) -> list[int]:
    """The width of each column when nothing is wrapped."""
    return [max(map(width, column)) for column in zip(*lines, strict=True)]


def _least(lines: Sequence[Sequence[str]]) -> list[int]:
    """The width of each column's longest word."""
    return _natural([[max(cell.split(" "), key=width) for cell in line] for line in lines])


def _parts(lines: Sequence[Sequence[str]], repeated: int, room: int) -> Sequence[Sequence[int]]:
    """The columns of each table that a table is split into: as few tables as fit without cut words, evenly filled."""
    least, natural = _least(lines), _natural(lines)
    labels = [max(word, min(whole, LABEL)) for word, whole in zip(least, natural[:repeated], strict=False)]
    own = range(repeated, len(least))
    for tables in range(1, len(own) + 1):
        size = -(-len(own) // tables)
        groups = [own[start : start + size] for start in range(0, len(own), size)]
        if all(_total([*labels, *(least[column] for column in group)]) <= room for group in groups):
            break
    return [[*range(repeated), *group] for group in groups]


def _fitted(lines: Sequence[Sequence[str]], room: int | None) -> list[int]:
    """Widths of columns that fit into `room`: the widest shrink, below their longest words only where they must."""
    widths = _natural(lines)
    if room is None or _total(widths) <= room:
        return widths
    for floor in (_least(lines), [1] * len(widths)):
        while _total(widths) > room and (wider := [i for i, w in enumerate(widths) if w > floor[i]]):
            widths[max(wider, key=widths.__getitem__)] -= 1
    return widths


def _drawn(lines: Sequence[Sequence[str]], widths: Sequence[int], head: bool) -> str:
    drawn = []
    for number, row in enumerate(lines):
        for texts in zip_longest(*map(_lines, row, widths), fillvalue=""):
            padded = (text + " " * (w - width(text)) for text, w in zip(texts, widths, strict=True))
            drawn.append((" " * GAP).join(padded).rstrip())
        if head and number == 0:
            drawn.append((" " * GAP).join("─" * w for w in widths))
    return "\n".join(drawn)


def _lines(text: str, room: int) -> list[str]:
    """The text in lines of at most `room` cells that end between words; a longer word is cut."""
    if width(text) <= room:
        return [text]
    from rich.console import Console
    from rich.text import Text

    return [line.plain.rstrip() for line in Text(text).wrap(Console(), room, overflow="fold")]
