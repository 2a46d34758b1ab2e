"""Renders diagrams as self-contained SVG with selectable text, and with the same in words. Imports no mlx.

The style sheet has light and dark, and one accent colour. A page that has its own choice of theme sets the custom
properties on `.zoo-diagram` itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from zoo.describe.diagram import geometry
from zoo.describe.diagram.arrange import Element
from zoo.describe.diagram.geometry import Column, head_lines, inside, lay_out, note_lines
from zoo.describe.diagram.model import ENDS, MARK, Box, Diagram, Frame
from zoo.describe.language import in_language, joined, message

COLOURS = {  # in the light theme, and in the dark one
    "ground": ("#ffffff", "#14171d"),
    "ink": ("#1f2430", "#e6e9ef"),
    "quiet": ("#5a6272", "#a2abba"),
    "line": ("#868e9c", "#7a8494"),
    "edge": ("#b9c0cc", "#454d5b"),
    "box": ("#f3f5f8", "#232832"),
    "cell": ("#ffffff", "#181c23"),
    "frame": ("#fafbfc", "#191d24"),
    "accent": ("#a83a08", "#ffab7d"),
    "tint": ("#fdf0e8", "#3a261b"),
}
LIGHT, DARK = ({name: pair[theme] for name, pair in COLOURS.items()} for theme in (0, 1))


def properties(colours: dict[str, str]) -> str:
    """The colours as custom properties."""
    return ";".join(f"--{name}:{colour}" for name, colour in colours.items())


@cache
def rules() -> str:
    """How everything is drawn, in the colours of the properties."""
    return "\n" + (files("zoo.describe.diagram") / "diagram.css").read_text(encoding="utf-8")


def style() -> str:
    """The style sheet with the colours of both themes."""
    light, dark = (f".zoo-diagram{{{properties(colours)}}}" for colours in (LIGHT, DARK))
    return f"{light}@media (prefers-color-scheme:dark){{{dark}}}{rules()}"


NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0, section 2.2


def escaped(text: str) -> str:
    """A text for XML: its markup escaped, and characters that XML cannot hold replaced by U+FFFD."""
    return escape(NOT_XML.sub("\ufffd", text))


def to_svg(diagrams: Sequence[Diagram], *, ident: str = "zoo") -> str:
    """One picture of the diagrams side by side. `ident` begins the ids in it, for pages that hold several.

    Raises nothing of its own.

    >>> from zoo.host.registry import default_registry
    >>> from zoo.describe.diagram import diagram_of, to_svg
    >>> picture = to_svg([diagram_of(zoo.load("llama").recipe, "llama", default_registry())])
    >>> picture.startswith("<svg ")
    True
    """
    return _document(diagrams, lay_out(diagrams), ident)


def to_svgs(diagrams: Sequence[Diagram], *, ident: str = "zoo") -> list[str]:
    """A picture for each diagram, all of one scale and height, with items of one role at one height."""
    pairs = enumerate(zip(diagrams, lay_out(diagrams), strict=True))
    return [_document([diagram], [columns], f"{ident}-{number}") for number, (diagram, columns) in pairs]


def _document(diagrams: Sequence[Diagram], groups: Sequence[Sequence[Column]], ident: str) -> str:
    title = message("Block diagram of {names}", names=joined(", ", (diagram.name for diagram in diagrams)))
    about = " ".join(described(diagram) for diagram in diagrams)
    language = diagrams[0].language if diagrams else "en"
    x, height, parts = 0.0, 0.0, []
    for columns in groups:
        parts.append(f'<g transform="translate({_n(x)} 0)">\n' + "\n".join(_drawn(columns)) + "\n</g>")
        x += geometry.stacks_width(columns[0].diagram) + geometry.APART
        height = columns[0].bottom + geometry.MARGIN
    width = x - geometry.APART + 2 * geometry.MARGIN if parts else 0.0
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="zoo-diagram" width="{_n(width)}" '
            f'height="{_n(height)}" viewBox="0 0 {_n(width)} {_n(height)}" role="graphics-document" '
            f'aria-labelledby="{ident}-title" aria-describedby="{ident}-desc">',
            f'<title id="{ident}-title">{escaped(in_language(title, language))}</title>',
            f'<desc id="{ident}-desc">{escaped(about)}</desc>',
            f"<style>{style()}</style>",
            f'<rect class="ground" width="{_n(width)}" height="{_n(height)}"/>',
            *parts,
            "</svg>\n",
        )
    )


def _drawn(columns: Sequence[Column]) -> Iterator[str]:
    yield from _head(columns)
    for column in columns:
        for element in column.elements:
            if element.kind == "close":
                yield from _frame(column, element)
        yield from _spine(column)
        for element in column.elements:
            if element.kind == "sum":
                yield from _residual(column, element)
    yield from _memory(columns)
    for column in columns:
        for element in column.elements:
            if element.kind == "box":
                yield from _box(column, element)


def _head(columns: Sequence[Column]) -> Iterator[str]:
    first = columns[0]
    y = geometry.MARGIN + 4.0
    name, about = head_lines(first.diagram)
    for line in name:
        y += 20
        yield _text(first.x, y, line, "name", geometry.NAME)
    for line in about:
        y += 18
        yield _text(first.x, y, line, "summary", geometry.SUMMARY)
    for column in columns:
        if column.stack.title:
            mark = MARK if column.stack.differs else ""
            kind = f"stack{_state(column.stack.differs)}"
            yield _text(column.x, y + 26, mark + column.stack.title, kind, geometry.TITLE)


def _frame(column: Column, element: Element) -> Iterator[str]:
    frame: Frame = element.item
    top, bottom = column.y(element.top), column.y(element.partner.y)
    mark = MARK if frame.differs else ""
    yield f'<g class="frame{_state(frame.differs)}" data-path="{escaped(frame.path)}" data-role="frame">'
    yield f'<rect x="{_n(column.x)}" y="{_n(top)}" width="{_n(column.width)}" height="{_n(bottom - top)}" rx="12"/>'
    yield _text(column.x + 12, top + 21, f"{mark}{frame.count:,} ×", "count", 16)
    if frame.label:
        place = (
            (column.notes, "") if column.width == geometry.COLUMN else (column.x + column.width - 12, "end")
        )
        yield _text(place[0], top + 21, frame.label, "label", geometry.NOTE, place[1])
    yield "</g>"


def _spine(column: Column) -> Iterator[str]:
    """The line from the lowest element to the highest, with an arrowhead wherever it enters a box."""
    x, path, heads = column.middle, "", ""
    y = column.elements[0].top
    for element in column.elements[1:]:
        if element.kind in ("box", "sum"):
            end = column.y(element.y)
            arrow = element.kind == "box"
            path += f"M{_n(x)} {_n(column.y(y))}V{_n(end + 5 if arrow else end)}"
            heads += f"M{_n(x)} {_n(end)}l-4 7h8z" if arrow else ""
            y = element.top
    yield f'<path class="flow" d="{path}"/>'
    yield f'<path class="tip" d="{heads}"/>'


def _residual(column: Column, element: Element) -> Iterator[str]:
    low = column.y(element.partner.y + element.partner.height / 2)
    high = column.y(element.y + element.height / 2)
    x, lane, radius = column.middle, column.left - geometry.LANE / 2 - 1, 9
    yield f'<g class="residual{_state(element.item.differs)}">'
    yield (
        f'<path class="flow" d="M{_n(x)} {_n(low)}H{_n(lane + 8)}Q{_n(lane)} {_n(low)} {_n(lane)} {_n(low - 8)}'
        f'V{_n(high + 8)}Q{_n(lane)} {_n(high)} {_n(lane + 8)} {_n(high)}H{_n(x - radius - 5)}"/>'
    )
    tip = x - radius
    yield f'<path class="tip" d="M{_n(tip)} {_n(high)}l-7 -4v8z"/>'
    yield f'<circle class="sum" cx="{_n(x)}" cy="{_n(high)}" r="{radius}"/>'
    yield f'<path class="plus" d="M{_n(x - 4.5)} {_n(high)}h9M{_n(x)} {_n(high - 4.5)}v9"/>'
    yield "</g>"


def _memory(columns: Sequence[Column]) -> Iterator[str]:
    """The arrow from what an encoder gives to each box of another stack that reads it."""
    for source in (column for column in columns if column.stack.end.role == "memory"):
        end = source.elements[-1]
        y = source.y(end.y + end.height / 2)
        for column in columns:
            for element in column.elements:
                if column is source or element.kind != "box" or not element.item.memory:
                    continue
                x = column.x - 15
                target = source.y(element.y + element.height / 2)
                turn = 8 if target > y else -8
                yield (
                    f'<g class="memory"><path class="flow" d="M{_n(source.middle + 42)} {_n(y)}H{_n(x - 8)}'
                    f"Q{_n(x)} {_n(y)} {_n(x)} {_n(y + turn)}V{_n(target - turn)}"
                    f'Q{_n(x)} {_n(target)} {_n(x + 8)} {_n(target)}H{_n(column.left - 5)}"/>'
                    f'<path class="tip" d="M{_n(column.left)} {_n(target)}l-7 -4v8z"/></g>'
                )


def _box(column: Column, element: Element) -> Iterator[str]:
    box: Box = element.item
    top, height = column.y(element.top), element.height
    title, cells, content_height = inside(box)
    attributes = f'data-path="{escaped(box.path)}" data-role="{escaped(box.role)}"'
    yield f'<g class="block {escaped(box.role)}{_state(box.differs)}" {attributes}>'
    yield f"<title>{escaped(box.title)}</title>"
    if box.role in ENDS:
        marked = (MARK if box.differs else "") + box.title
        yield _text(column.middle, top + height / 2 + 5, marked, "title", geometry.TITLE, "middle")
    else:
        yield f'<rect class="box" x="{_n(column.left)}" y="{_n(top)}" width="{geometry.BOX}" height="{_n(height)}" rx="7"/>'
        shift = (height - content_height) / 2
        base = top + shift + (geometry.PAD if box.role != "norm" or cells else geometry.PAD - 4)
        for number, line in enumerate(title):
            y = base + number * geometry.TITLE_LINE + 14
            yield _text(column.middle, y, line, "title", geometry.TITLE, "middle")
        for cell, left, below, width in cells:
            if not cell.title:
                continue
            x, y = column.left + left, top + shift + below
            middle = x + width / 2
            yield f'<g class="cell{_state(cell.differs)}" data-path="{escaped(cell.path)}">'
            if cell.title in geometry.OPERATORS:
                yield f'<circle cx="{_n(middle)}" cy="{_n(y + geometry.CELL_LINE / 2)}" r="8"/>'
            else:
                size = f'width="{_n(width)}" height="{geometry.CELL_LINE}"'
                yield f'<rect x="{_n(x)}" y="{_n(y)}" {size} rx="4"/>'
            yield _text(middle, y + 14.5, cell.title, "part", geometry.CELL, "middle") + "</g>"
    lines = note_lines(box)
    y = top + (height - len(lines) * geometry.NOTE_LINE) / 2 + 12.5
    for note, line, begins in lines:
        x, kind = column.notes + (0 if begins else 12), f"note{_state(note.differs)}"
        yield _text(x, y, line, kind, geometry.NOTE, key=note.name)
        y += geometry.NOTE_LINE
    yield "</g>"


def _text(x: float, y: float, text: str, kind: str, size: float, anchor: str = "", key: str = "") -> str:
    more = f' text-anchor="{anchor}"' if anchor else ""
    more += f' data-key="{escaped(key)}"' if key else ""
    return f'<text class="{kind}" x="{_n(x)}" y="{_n(y)}" font-size="{_n(size)}"{more}>{escaped(text)}</text>'


def _state(differs: bool) -> str:
    return " differs" if differs else ""


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def described(diagram: Diagram) -> str:
    """The boxes of a diagram from bottom to top, with their facts and what repeats, in the diagram's language."""
    stacks = []
    for stack in diagram.stacks:
        items = joined("; ", _items([stack.start, *stack.items, stack.end]))
        stacks.append(message("{title}: {items}", title=stack.title, items=items) if stack.title else items)
    about = _with_notes(diagram.name, diagram.summary)
    text = message("{diagram}, from bottom to top. {stacks}.", diagram=about, stacks=joined(". ", stacks))
    return in_language(text, diagram.language)


def _items(items: Sequence[Any]) -> Iterator[str]:
    for item in items:
        if isinstance(item, Box):
            text = message("{box} over the encoder's output", box=item.title) if item.memory else item.title
            text = _with_notes(text, joined(", ", (note.text for note in item.notes)))
            yield message("{box}, differs", box=text) if item.differs else text
        elif isinstance(item, Frame):
            label = ", {label}" if item.label else ""
            template = "{count} layers" + label + ", each: {inner}; end of the layer"
            inner = joined("; ", _items(item.items))
            yield message(template, count=item.count, label=item.label, inner=inner)
        else:
            yield message("residual sum around: {inner}", inner=joined(", ", _items(item.items)))


def _with_notes(text: str, notes: str) -> str:
    return message("{block} ({explanation})", block=text, explanation=notes) if notes else text
