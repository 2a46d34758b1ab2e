"""Small parts of figures: SVG whose colours are the custom properties of the page, so that it fits both themes."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"


def svg(width: float, height: float, parts: Iterable[str], label: str = "") -> str:
    """A picture of `width` x `height`, as wide as its place allows; `label` says what it shows, for who cannot see it."""
    named = f'role="img" aria-label="{escape(label, quote=True)}"' if label else 'aria-hidden="true"'
    inside = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {number(width)} {number(height)}" '
        f'width="{number(width)}" style="max-width:100%;height:auto;font-family:{FONT}" {named}>\n{inside}\n</svg>'
    )


def text(
    x: float,
    y: float,
    words: str,
    *,
    size: float = 14,
    colour: str = "ink",
    anchor: str = "start",
    bold: bool = False,
    more: str = "",
) -> str:
    """Words whose baseline begins at a point; `anchor` is "start", "middle" or "end"."""
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{number(x)}" y="{number(y)}" font-size="{number(size)}" fill="var(--{colour})" '
        f'text-anchor="{anchor}"{weight} {more}>{escape(words)}</text>'
    )


def rect(
    x: float,
    y: float,
    width: float,
    height: float,
    *,
    fill: str = "var(--box)",
    line: str = "var(--edge)",
    radius: float = 4,
    title: str = "",
) -> str:
    """A box; `title` is shown when one points at it."""
    inside = f"<title>{escape(title)}</title>" if title else ""
    return (
        f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}" '
        f'rx="{number(radius)}" style="fill:{fill};stroke:{line}">{inside}</rect>'
    )


def line(
    points: Iterable[tuple[float, float]], *, colour: str = "line", width: float = 1.5, dashed: bool = False
) -> str:
    """A line through points."""
    path = " ".join(f"{number(x)},{number(y)}" for x, y in points)
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<polyline points="{path}" style="fill:none;stroke:var(--{colour});stroke-width:{number(width)}"{dash}/>'


def number(value: float) -> str:
    """A coordinate, short."""
    return f"{value:.1f}".removesuffix(".0")
