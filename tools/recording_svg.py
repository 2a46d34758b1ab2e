"""Lines of a terminal as one animated SVG: keyframes of style sheets, no script, every text selectable.

The still picture, where motion is not wanted, is the last view. The moving one begins near the end of the first view.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from itertools import groupby

from rich.cells import cell_len

from zoo.describe.diagram.svg import DARK, LIGHT, properties

CELL, ROW, SIZE, EDGE = 6, 12, 10, 10  # width and height of a cell, size of the letters, margin
LETTER_BASE = 9  # of a row, from its top
GLIDE = 0.7  # seconds in which the view moves
SAME = 0.03  # seconds: what is written within them appears together
FIRST = 1.9  # seconds of the first view that the picture begins with, so that it is not empty before it moves
STYLES = {
    "bold": "font-weight:700",
    "dim": "fill:var(--quiet)",
    "under": "text-decoration:underline",
    "black": "fill:#1f2430",
    "yellow": "fill:var(--accent)",
    "prompt": "fill:var(--accent);font-weight:700",
    "typed": "font-weight:700",
}


@dataclass(frozen=True)
class Cell:
    """A character, its style, and the second in which it was written."""

    text: str
    style: frozenset[str]
    moment: float

    @property
    def width(self) -> int:
        """In cells of the terminal."""
        return cell_len(self.text)


Line = list[Cell]


@dataclass(frozen=True)
class Moment:
    """From second `when` the row `top` is the view's first; it `glides` there or is there at once."""

    when: float
    top: int
    glides: bool = False


@dataclass(frozen=True)
class Typed:
    """A command of `cells` cells: its row, when its prompt is shown, and from when to when it is typed."""

    row: int
    cells: int
    shown: float
    begin: float
    end: float


def picture(
    lines: list[Line],
    typed: list[Typed],
    views: list[Moment],
    seconds: float,
    size: tuple[int, int, int],
    said: str,
) -> str:
    """The SVG: `size` is the columns, the rows and the cells of a prompt."""
    columns, rows, prompt = size
    width, height = columns * CELL, rows * ROW
    bursts = _bursts(lines)
    begin = max(0.0, views[1].when - FIRST) if len(views) > 1 else 0.0
    sheet = [_sheet(views[-1].top * ROW, seconds, begin)]
    drawn = []
    for number, (moment, cells) in enumerate(bursts):
        hidden = "0%{opacity:0}" if moment else ""
        sheet.append(
            f"@keyframes zoo-b{number}{{{hidden}{_share(moment, seconds)},100%{{opacity:1}}}}"
            f".zoo-recording .b{number}{{animation-name:zoo-b{number}}}"
        )
        drawn.append(f'<g class="b b{number}">\n{_texts(cells)}\n</g>')
    for number, command in enumerate(typed):
        sheet.append(_typing(number, command, seconds))
        x, y = prompt * CELL, command.row * ROW
        drawn.append(
            f'<g class="c c{number}"><rect class="ground" x="{x}" y="{y}" width="{width}" height="{ROW}"/>'
            f'<rect class="cursor" x="{x}" y="{y}" width="{CELL}" height="{ROW}"/></g>'
        )
    sheet.append(_camera(views, seconds))
    outer = (width + 2 * EDGE, height + 2 * EDGE)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="zoo-recording" viewBox="0 0 {outer[0]} {outer[1]}" '
        f'width="{outer[0] * 1.5:g}" height="{outer[1] * 1.5:g}" role="img" '
        'aria-labelledby="zoo-recording-title" aria-describedby="zoo-recording-desc">\n'
        '<title id="zoo-recording-title">Recording of a terminal in which zoo is used</title>\n'
        f'<desc id="zoo-recording-desc">{escape(said)}</desc>\n'
        f"<style>{''.join(sheet)}</style>\n"
        f'<rect class="frame" x=".5" y=".5" width="{outer[0] - 1}" height="{outer[1] - 1}" rx="8"/>\n'
        f'<svg x="{EDGE}" y="{EDGE}" width="{width}" height="{height}"><g class="camera">\n'
        f"{chr(10).join(drawn)}\n</g></svg>\n</svg>\n"
    )


def text_of(svg: str) -> list[str]:
    """The lines of text in a picture that this module made, from top to bottom."""
    rows: dict[int, dict[int, str]] = {}
    for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
        row = int(element.attrib["y"]) // ROW
        rows.setdefault(row, {})[int(element.attrib["x"]) // CELL] = element.text or ""
    found = []
    for row in range(max(rows) + 1):
        line, column = "", 0
        for start, text in sorted(rows.get(row, {}).items()):
            line += " " * (start - column) + text
            column = start + cell_len(text)
        found.append(line)
    return found


def _bursts(lines: list[Line]) -> list[tuple[float, list[tuple[int, int, Cell]]]]:
    """What appears together: the second, and cells with their row and column, in the order of reading."""
    placed: list[tuple[int, int, Cell]] = []
    for row, line in enumerate(lines):
        column = 0
        for cell in line:
            placed.append((row, column, cell))
            column += cell.width
    found: list[tuple[float, list[tuple[int, int, Cell]]]] = []
    for one in sorted(placed, key=lambda one: one[2].moment):
        if not found or one[2].moment - found[-1][0] > SAME:
            found.append((one[2].moment, []))
        found[-1][1].append(one)
    return [(moment, sorted(cells, key=lambda one: one[:2])) for moment, cells in found]


def _texts(cells: list[tuple[int, int, Cell]]) -> str:
    """Each run of letters as a text of exactly its cells' width, whichever font shows it."""
    parts = []
    for row, column, style, text in _runs(cells):
        width = cell_len(text) * CELL
        x, y = column * CELL, row * ROW
        for name in sorted(style):
            if name.startswith("on-"):
                parts.append(
                    f'<rect x="{x}" y="{y}" width="{width}" height="{ROW}" fill="{_colour(int(name[3:]))}"/>'
                )
        names = " ".join(sorted(name for name in style if name in STYLES))
        if text.strip():
            kind = f' class="{names}"' if names else ""
            stretch = f' textLength="{width}"' if len(text) > 1 or width > CELL else ""
            parts.append(
                f'<text x="{x}" y="{y + LETTER_BASE}"{kind}{stretch}>{escape(text, quote=False)}</text>'
            )
    return "\n".join(parts)


def _runs(cells: Iterable[tuple[int, int, Cell]]) -> Iterator[tuple[int, int, frozenset[str], str]]:
    """Neighbouring cells of one row, style and kind of letter, without spaces around them."""
    for (row, style, kind), group in groupby(
        cells, key=lambda one: (one[0], one[2].style, _kind(one[2].text))
    ):
        found = list(group)
        start = 0
        for index in range(1, len(found) + 1):
            ends = index == len(found)
            apart = not ends and found[index][1] != found[index - 1][1] + found[index - 1][2].width
            # two spaces would be shown as one
            gap = not ends and found[index][2].text == " " and found[index - 1][2].text == " "
            if ends or apart or gap:
                text = "".join(cell.text for _, _, cell in found[start:index])
                kept = text if style & {"under"} else text.strip()
                lead = 0 if style & {"under"} else len(text) - len(text.lstrip())
                if kept:
                    yield row, found[start][1] + lead, style, kept
                start = index
        del kind


def _kind(character: str) -> str:
    """Letters of one font: those that a terminal's font may lack stand alone, so that what follows stays in its column."""
    if cell_len(character) == 2:
        return "wide"
    if ord(character) < 0x250 or 0x2500 <= ord(character) < 0x25A0:
        return "plain"
    return character


def _colour(number: int) -> str:
    """A colour of the 256 of a terminal, of the cube from 16 to 231."""
    levels = (0, 95, 135, 175, 215, 255)
    number -= 16
    return "#" + "".join(f"{levels[number // step % 6]:02x}" for step in (36, 6, 1))


def _share(moment: float, seconds: float) -> str:
    return f"{100 * moment / seconds:.2f}%"


def _sheet(last: int, seconds: float, begin: float) -> str:
    """Colours, letters, what all animations share, among it the second with which they begin, and the still view."""
    styles = "".join(f".zoo-recording .{name}{{{style}}}" for name, style in STYLES.items())
    used = ("ground", "ink", "quiet", "edge", "accent")
    light, dark = (properties({name: theme[name] for name in used}) for theme in (LIGHT, DARK))
    return (
        f".zoo-recording{{{light};font:{SIZE}px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',"
        "'Liberation Mono',monospace}"
        f"@media (prefers-color-scheme:dark){{.zoo-recording{{{dark}}}}}"
        ".zoo-recording text{fill:var(--ink)}.zoo-recording .ground{fill:var(--ground)}"
        ".zoo-recording .frame{fill:var(--ground);stroke:var(--edge)}.zoo-recording .cursor{fill:var(--quiet)}"
        f"{styles}.zoo-recording .c{{opacity:0}}.zoo-recording .camera{{transform:translateY(-{last}px)}}"
        f".zoo-recording .b,.zoo-recording .c,.zoo-recording .camera"
        f"{{animation:{seconds:.2f}s step-end -{begin:.2f}s infinite}}"
        "@media (prefers-reduced-motion:reduce){.zoo-recording .b,.zoo-recording .c,.zoo-recording .camera"
        "{animation:none}}"
    )


def _typing(number: int, command: Typed, seconds: float) -> str:
    """A cover that moves over a command, one cell a key."""
    shown, begin, end, entered = (
        _share(moment, seconds) for moment in (command.shown, command.begin, command.end, command.end + 0.12)
    )
    there = f"transform:translateX({command.cells * CELL}px)"
    first = "" if command.shown == 0 else "0%{transform:none;opacity:0}"
    return (
        f"@keyframes zoo-c{number}{{{first}{shown}{{transform:none;opacity:1}}"
        f"{begin}{{transform:none;opacity:1;animation-timing-function:steps({command.cells})}}"
        f"{end}{{{there};opacity:1}}{entered},100%{{{there};opacity:0}}}}"
        f".zoo-recording .c{number}{{animation-name:zoo-c{number}}}"
    )


def _camera(views: list[Moment], seconds: float) -> str:
    """The view's way from row to row."""
    frames = []
    before = views[0].top
    for view in views:
        if view.glides:
            frames.append((view.when, f"{_at(before)};animation-timing-function:ease-in-out"))
        frames.append((view.when + GLIDE * view.glides, _at(view.top)))
        before = view.top
    text = "".join(f"{_share(when, seconds)}{{{style}}}" for when, style in frames)
    return f"@keyframes zoo-camera{{{text}100%{{{_at(before)}}}}}.zoo-recording .camera{{animation-name:zoo-camera}}"


def _at(row: int) -> str:
    return f"transform:translateY(-{row * ROW}px)"
