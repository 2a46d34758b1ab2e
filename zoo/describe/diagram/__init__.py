"""Block diagrams of recipes, for the terminal and as SVG. Imports no mlx.

`diagram_of` draws a recipe as data, `marked` marks the differences among several, `diagram_in` translates the texts,
`to_text` and `to_svg` render them. A plugin's drawings are made of `Box`, `Residual`, `Frame`, `LayerStack`, `Note` and
`Cell`.
"""

from zoo.describe.diagram.arrange import marked
from zoo.describe.diagram.draw import DrawnSpec, diagram_of, note
from zoo.describe.diagram.model import Box, Cell, Diagram, Frame, LayerStack, Note, Residual, diagram_in
from zoo.describe.diagram.svg import to_svg
from zoo.describe.diagram.terminal import to_text

__all__ = [
    "Box",
    "Cell",
    "Diagram",
    "DrawnSpec",
    "Frame",
    "LayerStack",
    "Note",
    "Residual",
    "diagram_in",
    "diagram_of",
    "marked",
    "note",
    "to_svg",
    "to_text",
]
