"""Positions as vectors: the sinusoids of 2017, and how alike two positions are, by sinusoids and as learned."""

from __future__ import annotations

from typing import Any

import numpy as np

import zoo
from figures.parts import svg, text
from figures.tour_marks import grid, panels, said
from zoo import recipe
from zoo.blocks.position import SinusoidalPositions

SHOWN = 32  # positions
DIMS = 32  # of the sinusoids
CELL = 6.0
LEFT, TOP = 26.0, 32.0


def draw(language: str) -> str:
    """Three grids side by side."""
    sinusoids = np.array(SinusoidalPositions(recipe.SinusoidalPositions(interleaved=True), dim=DIMS)(SHOWN))
    learned = np.array(zoo.load("gpt2").model.embedding.positions(SHOWN), dtype=np.float32)
    position = said(language, "position", "位置")
    titles = (
        (said(language, "sinusoids", "正弦位置编码"), sinusoids, said(language, "dimension", "维度")),
        (said(language, "likeness, sinusoids", "相似度：正弦"), likeness(sinusoids), position),
        (said(language, "likeness, learned", "相似度：可学习"), likeness(learned), position),
    )
    return panels([panel(title, values, across, position) for title, values, across in titles])


def likeness(vectors: Any) -> Any:
    """The cosine of each two positions' vectors."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit @ unit.T


def panel(title: str, values: Any, across: str, down: str) -> str:
    """A grid with its title and the names of its axes."""
    side = SHOWN * CELL
    x, y = LEFT - 8, TOP + side / 2
    drawn = [
        text(LEFT, 18, title, bold=True),
        grid(values, LEFT, TOP, CELL, CELL),
        text(LEFT + side / 2, TOP + side + 18, across, anchor="middle", colour="quiet"),
        text(x, y, down, anchor="middle", colour="quiet", more=f'transform="rotate(-90 {x} {y})"'),
    ]
    return svg(LEFT + side + 4, TOP + side + 26, drawn)
