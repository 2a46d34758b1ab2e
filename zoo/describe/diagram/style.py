"""The style sheet of SVG diagrams: light and dark, one accent colour. Imports no mlx.

A page that has its own choice of theme sets the custom properties on `.zoo-diagram` itself.
"""

from functools import cache
from importlib.resources import files

LIGHT = {
    "ground": "#ffffff",
    "ink": "#1f2430",
    "quiet": "#5a6272",
    "line": "#868e9c",
    "edge": "#b9c0cc",
    "box": "#f3f5f8",
    "cell": "#ffffff",
    "frame": "#fafbfc",
    "accent": "#a83a08",
    "tint": "#fdf0e8",
}
DARK = {
    "ground": "#14171d",
    "ink": "#e6e9ef",
    "quiet": "#a2abba",
    "line": "#7a8494",
    "edge": "#454d5b",
    "box": "#232832",
    "cell": "#181c23",
    "frame": "#191d24",
    "accent": "#ffab7d",
    "tint": "#3a261b",
}


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
