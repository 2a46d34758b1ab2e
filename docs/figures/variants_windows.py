"""A window of three tokens, and how far back a token's information comes from after one, two and three layers of it."""

from __future__ import annotations

import numpy as np

from figures.parts import rect, svg, text
from figures.tour_marks import panels, said, shade
from zoo.blocks.mask import attention_mask

TOKENS, WINDOW = 10, 3
CELL = 18.0


def draw(language: str) -> str:
    """The mask, and its powers."""
    seen = np.array(attention_mask(TOKENS, window=WINDOW)).reshape(TOKENS, TOKENS).astype(int)
    reached, pictures = np.eye(TOKENS, dtype=int), []
    for layers in (1, 2, 3):
        reached = (reached @ seen > 0).astype(int)
        title = said(language, f"after {layers} layer{'s' * (layers > 1)}", f"{layers} 层之后")
        pictures.append(panel(title, reached))
    return panels(pictures)


def panel(title: str, values: np.ndarray) -> str:
    """Which tokens (columns) a position (row) holds something of; the last row's reach stands out."""
    drawn = [text(4, 18, title, bold=True)]
    for (row, column), value in np.ndenumerate(values):
        strength = 0 if not value else (0.9 if row == TOKENS - 1 else 0.4)
        drawn.append(rect(4 + column * CELL, 28 + row * CELL, CELL, CELL, fill=shade(strength), radius=0))
    return svg(TOKENS * CELL + 8, TOKENS * CELL + 32, drawn)
