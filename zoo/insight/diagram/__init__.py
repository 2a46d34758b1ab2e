"""Block diagrams of recipes, for the terminal and as SVG. Imports no mlx.

`diagram_of` draws a recipe as data, `marked` marks what differs among several, `diagram_in` puts its
texts into another language, `to_text` and `to_svg` render them. A plugin's drawings are made of `Box`, `Residual`, `Frame`, `Stack`, `Note` and `Cell`.
"""

from zoo.insight.diagram.difference import marked
from zoo.insight.diagram.draw import Subject, diagram_of
from zoo.insight.diagram.model import Box, Cell, Diagram, Frame, Note, Residual, Stack
from zoo.insight.diagram.svg import to_svg
from zoo.insight.diagram.text import to_text
from zoo.insight.diagram.translate import diagram_in

__all__ = [
    "Box",
    "Cell",
    "Diagram",
    "Frame",
    "Note",
    "Residual",
    "Stack",
    "Subject",
    "diagram_in",
    "diagram_of",
    "marked",
    "to_svg",
    "to_text",
]
