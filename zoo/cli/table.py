"""Aligned columns of text that fit the terminal; in a pipe, one line a row."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from zoo.cli.terminal import columns, visible

GAP = 2  # cells between two columns
LEAST = 16  # the least width to which a column of longer words is cut


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

    Where the longest words leave no room for all columns, the table is split into several, each of which begins with
    the first `repeated` columns and leaves out the rows that have nothing ("–") in its own; without `repeated`, words
    are cut.
    """
    lines = [[_cell(cell) for cell in row] for row in ([head, *rows] if head else rows)]
    if not lines:
        return ""
    room = columns() if room is None else room
    natural = [max(map(width, column)) for column in zip(*lines, strict=True)]
    if room is None or _total(natural) <= room:
        return _drawn(lines, natural, bool(head))
    least = [max(map(longest_word, column)) for column in zip(*lines, strict=True)]
    if _total(least) <= room:
        return _drawn(lines, _shrunk(natural, least, room), bool(head))
    if repeated and len(natural) > repeated + 1:
        return "\n\n".join(
            _drawn(_with_columns(lines, part, repeated), _fitted(natural, least, part, room), bool(head))
            for part in _parts(natural, repeated, room)
        )
    return _drawn(lines, _fitted(natural, least, range(len(natural)), room), bool(head))


def wrapped(text: str, room: int | None, first: str = "", later: str = "") -> str:
    """A paragraph as lines of at most `room` cells: `first` is put before the first, `later` before the others."""
    if room is None:
        return first + text
    lines = _lines(text, max(room - max(width(first), width(later)), 1))
    return "\n".join((later if number else first) + line for number, line in enumerate(lines))


def facts(parts: Sequence[str], room: int | None, between: str = " · ") -> str:
    """Short facts in one line, or in several of at most `room` cells: a line ends between two facts, or within a wide one."""
    lines: list[str] = []
    for part in parts:
        longer = f"{lines[-1]}{between}{part}" if lines else part
        if room is None or width(longer) <= room:
            lines[-1:] = [longer]
        else:
            lines += _lines(part, max(room, 1))
    return "\n".join(lines)


def _cell(cell: object) -> str:
    """A cell's text; on a terminal in one line, with nothing in it that would move what follows."""
    text = str(cell)
    return text if columns() is None else visible(" ".join(text.split("\n")).replace("\t", " "))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def longest_word(text: str) -> int:
    """The width of the longest unit of a text that is not broken."""
    return max((width(word) for word in _words(text)), default=0)


def _words(text: str) -> list[str]:
    """The units that are not broken: runs without a space, and single characters of scripts written without spaces."""
    return [word for run in text.split(" ") for word in re.findall(r"[⺀-\U0003fffd]|[^⺀-\U0003fffd]+", run)]


def _shrunk(natural: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Widths that fit into `room`: the widest columns shrink, none below its longest word."""
    most = max(natural)
    while _total(fitting := [min(n, max(most, w)) for n, w in zip(natural, least, strict=True)]) > room:
        most -= 1
    return fitting


def _fitted(natural: Sequence[int], least: Sequence[int], part: Sequence[int], room: int) -> list[int]:
    """Widths of some columns that fit into `room`, with words cut where they leave no room."""
    natural, least = [natural[column] for column in part], [least[column] for column in part]
    longest = max(least)
    while _total(least) > room and longest > LEAST:
        longest -= 1
        least = [min(w, longest) for w in least]
    while _total(least) > room and max(least) > 1:
        least[least.index(max(least))] -= 1
    return _shrunk(natural, least, max(room, _total(least)))


def _parts(natural: Sequence[int], repeated: int, room: int) -> list[list[int]]:
    """The columns of each of the tables that a table is split into, as many in each as fit uncut."""
    keys = list(range(repeated))
    parts = [list(keys)]
    for column in range(repeated, len(natural)):
        if parts[-1] != keys and _total([natural[index] for index in (*parts[-1], column)]) > room:
            parts.append(list(keys))
        parts[-1].append(column)
    return parts


def _with_columns(lines: Sequence[Sequence[str]], part: Sequence[int], repeated: int) -> list[list[str]]:
    """The given columns of the lines, without the lines that have nothing in them."""
    chosen = [[line[column] for column in part] for line in lines]
    return [line for line in chosen if set(line[repeated:]) - {"", "–"}]


def _drawn(lines: Sequence[Sequence[str]], widths: Sequence[int], head: bool) -> str:
    drawn = [line for row in lines for line in _row(row, widths)]
    if head:
        drawn.insert(len(list(_row(lines[0], widths))), (" " * GAP).join("─" * w for w in widths))
    return "\n".join(drawn)


def _row(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """The lines of one row."""
    cells = [_lines(cell, w) if width(cell) > w else [cell] for cell, w in zip(row, widths, strict=True)]
    for number in range(max(map(len, cells))):
        texts = [cell[number] if number < len(cell) else "" for cell in cells]
        padded = (text + " " * (w - width(text)) for text, w in zip(texts, widths, strict=True))
        yield (" " * GAP).join(padded).rstrip()


def _lines(text: str, room: int) -> list[str]:
    """The text in lines of at most `room` cells that end between words; a longer word is cut, after a punctuation mark if it has one."""
    lines, line = [], ""
    for index, run in enumerate(text.split(" ")):
        for number, word in enumerate(_words(run) or [""]):
            space = " " if index and not number else ""
            if line and width(line + space + word) > room:
                lines.append(line)
                line = space = ""
            *full, line = _cut(line + space + word, room)
            lines += full
    return [*lines, line]


def _cut(word: str, room: int) -> Iterator[str]:
    while width(word) > room:
        end = 1
        while end < len(word) and width(word[: end + 1]) <= room:
            end += 1
        end = max(word.rfind(mark, 1, end) + 1 for mark in "/.-_,") or end
        yield word[:end]
        word = word[end:]
    yield word
