"""A tokenizer's pieces on a terminal, in colours, and in a pipe, a line each."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from zoo.cli.table import facts, table, width
from zoo.cli.terminal import columns

if TYPE_CHECKING:
    from rich.console import Console

    from zoo.inspect.tokenization import Piece, Tokenization

SPACE = "␣"
# Light backgrounds of the 256 colours, black on each readable, that differ in brightness as in hue.
COLOURS = ("black on color(153)", "black on color(223)", "black on color(151)", "black on color(189)")
SPECIAL = "bold white on color(240)"
UNKNOWN = "bold black on color(210)"
GAP = 1  # cells between two pieces
PIPE = 100  # columns of a pipe, which has no width of its own


def written(piece: Piece) -> str:
    r"""A piece in visible, distinguishable signs.

    A space is ␣, a byte that is a part of a character `\xe4`; a backslash, a ␣ of the text, and what has no width or no
    picture of its own are escapes as in Python.
    """
    if piece.special or piece.unknown:
        return escaped(piece.token)
    return escaped(piece.bytes.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace"))


def escaped(text: str) -> str:
    r"""Text in signs that can be seen: a space is ␣, what has no picture of its own an escape as in Python."""
    signs = [SPACE if s == " " else s if s.isprintable() and s != SPACE else ascii(s)[1:-1] for s in text]
    if signs and unicodedata.category(text[0]).startswith("M"):  # it would join what is before it
        signs[0] = ascii(text[0])[1:-1]
    return "".join(signs)


def listed(pieces: Sequence[Piece]) -> str:
    """A line for each piece: id, piece, bytes in hexadecimal digits, the characters that it covers, its kind."""
    rows = [
        [
            str(piece.id),
            written(piece),
            piece.bytes.hex(" ") or "–",
            "–" if piece.start is None else f"{piece.start}–{piece.end}",
            _kind(piece),
        ]
        for piece in pieces
    ]
    return table(rows, ["id", "piece", "bytes", "characters", "kind"])


def _kind(piece: Piece) -> str:
    if piece.unknown:
        return "unknown"
    kind = "special, added" if piece.added else "special" if piece.special else ""
    return kind or ("part of a character" if piece.partial else "")


def counted(found: Sequence[Tokenization]) -> str:
    """How many pieces each tokenizer made of the text, side by side."""
    text = found[0].text
    size = f"{len(text.encode('utf-8')):,} bytes", f"{len(text):,} characters"
    if len(found) == 1:
        one = found[0]
        added = len(one.pieces) - one.own
        return facts(
            [
                one.source,
                f"{one.own:,} token{'s' * (one.own != 1)}"
                + f" and {added} added around the text" * bool(added),
                size[0] + f", {_ratio(one.bytes_per_token)} a token" * bool(one.own),
                size[1] + f", {_ratio(one.characters_per_token)} a token" * bool(one.own),
                f"{one.unknown} unknown",
                f"vocabulary {one.vocabulary:,}",
            ],
            columns(),
        )
    rows = [
        [
            one.source,
            f"{one.own:,}",
            f"{len(one.pieces) - one.own}",
            _ratio(one.bytes_per_token),
            _ratio(one.characters_per_token),
            str(one.unknown),
            f"{one.vocabulary:,}",
        ]
        for one in found
    ]
    head = ["tokenizer", "tokens", "added", "bytes a token", "characters a token", "unknown", "vocabulary"]
    return f"text: {size[0]}, {size[1]}\n{table(rows, head, repeated=1)}"


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def draw(pieces: Sequence[Piece]) -> None:
    """Draw pieces on the terminal as coloured cells, each with its id below it.

    Bytes are shown where the piece is not plain ASCII, and the kind of special and unknown tokens.
    """
    draw_cells(
        (_cell(piece), _style(piece, number), "\n" in piece.text) for number, piece in enumerate(pieces)
    )


def draw_cells(cells: Iterable[tuple[Sequence[str], str, bool]]) -> None:
    """Draw cells in rows that fit the terminal: lines, the first in a style, and whether the cell ends its row."""
    from rich.console import Console

    console = Console(file=sys.stdout, highlight=False)
    room = columns() or PIPE
    row: list[tuple[list[str], str, int]] = []
    for lines, style, ends_row in cells:
        shown = [cut(line, room - GAP) for line in lines]
        size = max(map(width, shown)) + GAP
        if row and sum(each for _, _, each in row) + size > room:
            _draw_row(console, row)
            row = []
        row.append((shown, style, size))
        if ends_row:
            _draw_row(console, row)
            row = []
    if row:
        _draw_row(console, row)


def _draw_row(console: Console, row: Sequence[tuple[Sequence[str], str, int]]) -> None:
    from rich.text import Text

    for number in range(len(row[0][0])):
        text = Text()
        for lines, style, size in row:
            text.append(lines[number], "dim" if number else style)
            text.append(" " * (size - width(lines[number])))
        text.rstrip()
        if text:
            console.print(text, soft_wrap=True)


def cut(text: str, room: int) -> str:
    """The text, with an ellipsis at its end where it is wider than `room` cells."""
    if width(text) <= room:
        return text
    from rich.text import Text

    shown = Text(text)
    shown.truncate(room, overflow="ellipsis")
    return shown.plain


def _cell(piece: Piece) -> tuple[str, str, str]:
    """The lines of one cell: piece, id, and its other properties."""
    plain = piece.partial or (piece.bytes.isascii() and piece.text.isprintable())
    note = _kind(piece).removesuffix(", added") if piece.special or piece.unknown else ""
    return written(piece), str(piece.id), note or ("" if plain else piece.bytes.hex())


def _style(piece: Piece, number: int) -> str:
    return UNKNOWN if piece.unknown else SPECIAL if piece.special else COLOURS[number % len(COLOURS)]
