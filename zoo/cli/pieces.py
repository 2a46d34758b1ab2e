"""A tokenizer's pieces on a terminal, in colours, and in a pipe, a line each."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from zoo.cli.table import facts, table, width
from zoo.cli.terminal import columns

if TYPE_CHECKING:
    from zoo.inspect.tokenization import Piece, Tokenization

SPACE = "␣"
# Light backgrounds of the 256 colours, black on each readable, that differ in brightness as in hue.
COLOURS = ("black on color(153)", "black on color(223)", "black on color(151)", "black on color(189)")
SPECIAL = "bold white on color(240)"
UNKNOWN = "bold black on color(210)"
GAP = 1  # cells between two pieces


def written(piece: Piece) -> str:
    r"""A piece in signs that can be seen and distinguished.

    A space is ␣, a byte that is a part of a character `\xe4`; a backslash, a ␣ of the text, and what has no width or no
    picture of its own are escapes as in Python.
    """
    if piece.special or piece.unknown:
        return escaped(piece.token)
    return escaped(piece.bytes.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace"))


def escaped(text: str) -> str:
    r"""Text in signs that can be seen: a space is ␣, what has no picture of its own an escape as in Python."""
    signs = [SPACE if sign == " " else sign if _stands_alone(sign) else ascii(sign)[1:-1] for sign in text]
    if signs and unicodedata.category(text[0]).startswith("M"):  # it would join what is before it
        signs[0] = ascii(text[0])[1:-1]
    return "".join(signs)


def _stands_alone(sign: str) -> bool:
    return sign.isprintable() and sign != SPACE


def listed(pieces: Sequence[Piece]) -> str:
    """A line for each piece: id, piece, bytes in hexadecimal digits, the characters that it covers, its kind."""
    rows = [
        [str(piece.id), written(piece), piece.bytes.hex(" ") or "–", _place(piece), _kind(piece)]
        for piece in pieces
    ]
    return table(rows, ["id", "piece", "bytes", "characters", "kind"])


def _place(piece: Piece) -> str:
    return "–" if piece.start is None else f"{piece.start}–{piece.end}"


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

    Bytes are shown where the piece is not plain ASCII, and the kind of what is no text.
    """
    from rich.console import Console
    from rich.text import Text

    room = columns() or 80
    console = Console(file=sys.stdout, width=room, highlight=False)
    cells = ((_cell(piece, room), _style(piece, number)) for number, piece in enumerate(pieces))
    for row in _rows(list(zip(cells, pieces, strict=True)), room):
        for line in range(3):
            text = Text()
            for lines, style in row:
                cell = lines[line]
                text.append(cell, style if line == 0 else "dim")
                text.append(" " * (max(map(width, lines)) - width(cell) + GAP))
            text.rstrip()
            if text:
                console.print(text, soft_wrap=True)


def _cell(piece: Piece, room: int) -> tuple[str, ...]:
    """The lines of one cell: piece, id, and its other properties."""
    plain = piece.partial or (piece.bytes.isascii() and piece.text.isprintable())
    note = _kind(piece).removesuffix(", added") if piece.special or piece.unknown else ""
    lines = written(piece), str(piece.id), note or ("" if plain else piece.bytes.hex())
    return tuple(_cut(line, room - GAP) for line in lines)


def _style(piece: Piece, number: int) -> str:
    return UNKNOWN if piece.unknown else SPECIAL if piece.special else COLOURS[number % len(COLOURS)]


def _cut(text: str, room: int) -> str:
    if width(text) <= room:
        return text
    while width(text) >= room:
        text = text[:-1]
    return text + "…"


def _rows(cells: Sequence[tuple[Any, Piece]], room: int) -> Iterator[list[Any]]:
    """Cells in rows that fit into the room; a piece with the end of a line ends its row."""
    row: list[Any] = []
    used = 0
    for cell, piece in cells:
        size = max(map(width, cell[0])) + GAP
        if row and used + size > room:
            yield row
            row, used = [], 0
        row.append(cell)
        used += size
        if "\n" in piece.text:
            yield row
            row, used = [], 0
    if row:
        yield row
