"""The strip of shapes as an SVG file, and in words. Needs no Sphinx."""

from __future__ import annotations

from figures.parts import rect, text

from building.picture import WIDEST, document
from building.shape_rows import Row, Stage
from building.shapes import NAMES, SAID, TITLES, Strip, axes_of, shown
from zoo.describe.diagram.text_width import text_width

SIZE, SMALL = 13.0, 12.0  # of the letters of names, and of shapes
HIGH, ARROW, FRAME = (
    52.0,
    20.0,
    8.0,
)  # a stage's height, the room for an arrow, the margin of the frame of layers


def picture(strip: Strip) -> str:
    """The strip as an SVG file."""
    parts: list[str] = []
    top = 0.0
    for row in strip.rows:
        if title := TITLES[strip.language].get(row.title, row.title):
            parts.append(text(0, top + 14, title, size=SIZE, bold=True))
            top += 22
        drawn, top = row_of(row, top, strip)
        parts += drawn
    for line in lines(legend(strip)):
        parts.append(text(0, top + 12, line, size=SMALL, colour="quiet"))
        top += 17
    return document(WIDEST, top, parts)


def row_of(row: Row, top: float, strip: Strip) -> tuple[list[str], float]:
    """The stages of a row, in as many lines as they take, those of the layers in a frame; and where the next may begin."""
    parts: list[str] = []
    x, begun = 0.0, False
    for group in (row.before, row.layer, row.after):
        label = f"× {row.count}" if group is row.layer else ""
        head = text_width(label, SMALL) + 4 + FRAME if label else 0.0
        widths = [wide(stage, row, strip.language) for stage in group]
        whole = sum(widths) + ARROW * (len(widths) - 1) + (head + FRAME if label else 0)
        if begun and x + ARROW + whole > WIDEST:
            x, top = 0.0, top + HIGH + FRAME * 2
        if begun:
            parts.append(arrow(x, top))
            x += ARROW
        if label:
            parts.append(
                rect(x, top - FRAME + 4, whole, HIGH + 2 * FRAME - 8, fill="none", line="var(--edge)")
            )
            parts.append(text(x + FRAME, top + 28, label, size=SMALL, colour="quiet"))
            x += head
        for number, (stage, width) in enumerate(zip(group, widths, strict=True)):
            if number:
                parts.append(arrow(x, top))
                x += ARROW
            parts += stage_of(stage, row, x, top, width, strip)
            x, begun = x + width, True
        x += FRAME if label else 0
    return parts, top + HIGH + FRAME * 2


def arrow(x: float, top: float) -> str:
    """An arrow in the room before a stage."""
    return text(x + 4, top + 28, "→", size=SIZE, colour="quiet")


def stage_of(stage: Stage, row: Row, x: float, top: float, width: float, strip: Strip) -> list[str]:
    """One stage: its name, its shape in symbols and in numbers; in a box where the page is about it."""
    here = stage.name == strip.at
    name, shape, numbers = said(stage, row, strip.language)
    middle = x + width / 2
    parts = [rect(x, top, width, HIGH, fill="var(--box)", line="var(--accent)")] if here else []
    parts.append(text(middle, top + 16, name, size=SIZE, anchor="middle", bold=here))
    parts.append(text(middle, top + 31, shape, size=SMALL, anchor="middle", more='font-style="italic"'))
    if numbers != shape:
        parts.append(text(middle, top + 45, numbers, size=SMALL, anchor="middle", colour="quiet"))
    return parts


def said(stage: Stage, row: Row, language: str) -> tuple[str, str, str]:
    """A stage's name, its shape in symbols and in numbers, "" where it has none."""
    if stage.name == "text":
        return NAMES[language][stage.name], "", ""
    numbers = shown(f"{row.sizes[axis]:,}" if axis in row.sizes else axis for axis in stage.axes)
    return NAMES[language][stage.name], shown(stage.axes), numbers


def wide(stage: Stage, row: Row, language: str) -> float:
    """How wide a stage is."""
    name, shape, numbers = said(stage, row, language)
    return max(text_width(name, SIZE) * 1.06, text_width(shape, SMALL), text_width(numbers, SMALL)) + 16


def legend(strip: Strip) -> str:
    """What the numbers are of, and what each symbol stands for."""
    return f"{strip.caption}{SAID[strip.language]['colon']}{axes_of(strip.rows, strip.language)}"


def lines(words: str) -> list[str]:
    """A text in lines that fit."""
    found, current = [], ""
    for piece in words.replace("，", "， ").split(" "):
        longer = f"{current} {piece}" if current and not current.endswith("，") else current + piece
        if current and text_width(longer, SMALL) > WIDEST:
            found.append(current)
            longer = piece
        current = longer
    return [*found, current]


def words(strip: Strip) -> str:
    """The strip in words: each stage with its shape, a row after the other."""
    rows = []
    for row in strip.rows:
        stages = (
            " ".join(part for part in said(stage, row, strip.language)[::2] if part) for stage in row.stages
        )
        title = TITLES[strip.language].get(row.title, row.title)
        rows.append(f"{title}{SAID[strip.language]['colon'] if title else ''}{' → '.join(stages)}")
    return (
        f"{SAID[strip.language]['shapes']}{SAID[strip.language]['colon']}{'; '.join(rows)}. {legend(strip)}"
    )
