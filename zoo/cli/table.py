"""Aligned columns of text that fit the terminal; in a pipe, one line a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from zoo.cli.terminal import columns, visible

GAP = 2  # cells between two columns
LABEL = 24  # cells within which a repeated column is not wrapped


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
    drawn = [list(_row(row, widths)) for row in lines]
    if head:
        drawn.insert(1, [(" " * GAP).join("─" * w for w in widths)])
    return "\n".join(line for row in drawn for line in row)


def _row(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """The lines of one row."""
    for texts in zip_longest(*map(_lines, row, widths), fillvalue=""):
        padded = (text + " " * (w - width(text)) for text, w in zip(texts, widths, strict=True))
        yield (" " * GAP).join(padded).rstrip()


def _lines(text: str, room: int) -> list[str]:
    """The text in lines of at most `room` cells that end between words; a longer word is cut."""
    if width(text) <= room:
        return [text]
    from rich.console import Console
    from rich.text import Text

    return [line.plain.rstrip() for line in Text(text).wrap(Console(), room, overflow="fold")]
