"""The drawings of docs/figures as SVG files that Markdown shows, in light and dark. Needs no Sphinx.

A page has `![what it shows](pictures/drawn/NAME.svg)`; NAME is that of a file in docs/figures, with the words that its
`draw` takes after dots. `make outputs` writes the file. The site shows what `draw` returns, which one can point at.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from importlib import import_module
from types import ModuleType

from figures.parts import FONT, number

from building.build_cache import cached_result
from zoo.describe.diagram.svg import DARK, LIGHT, properties

FOLDER = "pictures/drawn"  # of each language
WIDEST = 800.0  # of a row of pictures
GAP = 20.0
PICTURE = re.compile(r"<svg\b([^>]*)>(.*?)</svg>", re.DOTALL)
SIZE = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')
STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)
TAG = re.compile(r"(<[^>]*>)")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
# What only a page can use: links, what is shown when one points at it, words for who cannot see it.
OF_PAGES = re.compile(
    r'<title>.*?</title>|<text [^>]*class="near".*?</text>|</?a\b[^>]*>|(?<=<text) class="\w+"| (?:role|tabindex|aria-\w+)="[^"]*"',
    re.DOTALL,
)


def drawer(stem: str) -> tuple[ModuleType | None, list[str]]:
    """The module of docs/figures that draws the picture of this name, if there is one, and the words for its `draw`."""
    name, *words = stem.split(".")
    try:
        module = import_module(f"figures.{name}")
    except ModuleNotFoundError:
        return None, words
    return (module if hasattr(module, "draw") else None), words


def drawing(stem: str, language: str) -> str:
    """What the figure of this name draws, as HTML. ValueError where there is none."""
    module, words = drawer(stem)
    if module is None:
        raise ValueError(f"no figure draws {stem}")
    drawn: str = cached_result(lambda: module.draw(language, *words), "drawing", stem, language)
    return drawn


def picture_file(drawn: str) -> str:
    """The pictures in some HTML as one SVG file, side by side where there is room."""
    inside, width, height = arranged(PICTURE.findall(drawn))
    return document(width, height, inside, "".join(STYLE.findall(drawn)))


def same_picture(old: str, new: str) -> bool:
    """Whether two SVG files differ only as libraries of matrices round: what is written by a hundredth, places by a point."""
    before, after = TAG.split(old), TAG.split(new)
    if len(before) != len(after):
        return False
    for index, (a, b) in enumerate(zip(before, after, strict=True)):
        if a != b:
            relative, absolute = (0.02, 1.01) if index % 2 else (0.01, 0.011)
            pairs = zip(NUMBER.findall(a), NUMBER.findall(b), strict=False)
            near = all(math.isclose(float(x), float(y), rel_tol=relative, abs_tol=absolute) for x, y in pairs)
            if not near or NUMBER.sub("0", a) != NUMBER.sub("0", b):
                return False
    return True


def document(width: float, height: float, parts: Iterable[str], style: str = "") -> str:
    """An SVG file with the colours of both themes, and a ground of its own, since a page may have another theme."""
    light, dark = (f":root{{{properties(colours)}}}" for colours in (LIGHT, DARK))
    edge = 8
    box = f"{-edge} {-edge} {number(width + 2 * edge)} {number(height + 2 * edge)}"
    inside = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" width="{number(width + 2 * edge)}" '
        f'height="{number(height + 2 * edge)}" role="img">\n'
        f"<style>{light}@media (prefers-color-scheme:dark){{{dark}}}svg{{font-family:{FONT}}}{style}</style>\n"
        f'<rect x="{-edge}" y="{-edge}" width="100%" height="100%" rx="8" style="fill:var(--ground)"/>\n'
        f"{inside}\n</svg>\n"
    )


def arranged(pictures: Iterable[tuple[str, str]]) -> tuple[list[str], float, float]:
    """Pictures, by attributes and content, in rows: each placed, and the width and height of all."""
    rows: list[list[tuple[float, float, str, str]]] = [[]]
    for attributes, content in pictures:
        size = SIZE.search(attributes)
        if size is None:
            raise ValueError(f"a picture without a viewBox: {attributes}")
        wide, high = float(size[1]), float(size[2])
        if rows[-1] and sum(one[0] + GAP for one in rows[-1]) + wide > WIDEST:
            rows.append([])
        rows[-1].append((wide, high, attributes, content))
    widths = [sum(one[0] for one in row) + GAP * (len(row) - 1) for row in rows]
    parts, top = [], 0.0
    for row, width in zip(rows, widths, strict=True):
        left = (max(widths) - width) / 2
        for wide, high, attributes, content in row:
            named = re.search(r'class="[^"]*"', attributes)
            place = f'x="{number(left)}" y="{number(top)}" width="{number(wide)}" height="{number(high)}"'
            box = f'viewBox="0 0 {number(wide)} {number(high)}"'
            parts.append(
                f"<svg {place} {box}{f' {named[0]}' if named else ''}>{OF_PAGES.sub('', content)}</svg>"
            )
            left += wide + GAP
        top += max(one[1] for one in row) + GAP
    return parts, max(widths), top - GAP
