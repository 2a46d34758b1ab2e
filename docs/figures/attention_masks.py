"""The masks of attention, as the zoo makes them: which keys (columns) a query (row) may see."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from figures.parts import rect, svg, text
from figures.tour_marks import panels, said, shade
from zoo.blocks.mask import attention_mask, dense

TOKENS = 6
CELL = 22.0


def draw(language: str) -> str:
    """Causal, full, prefix, and causal with padding."""
    masks = (
        (said(language, "causal", "因果"), attention_mask(TOKENS)),
        (said(language, "full", "全可见"), attention_mask(TOKENS, causality="full")),
        (
            said(language, "prefix of three", "前缀（三个词元）"),
            attention_mask(TOKENS, causality="prefix", prefix=3),
        ),
        (
            said(language, "causal, padded left", "因果，左侧填充两列"),
            attention_mask(TOKENS, padding=mx.array([2])),
        ),
    )
    return panels([panel(title, seen(mask)) for title, mask in masks])


def seen(mask: object) -> np.ndarray:
    """A mask of any kind as numbers (T, S), 1 where a query sees a key."""
    found = dense(mask, TOKENS, TOKENS)
    every = mx.ones((TOKENS, TOKENS), dtype=mx.bool_) if found is None else found
    return np.array(every).reshape(TOKENS, TOKENS).astype(float)


def panel(title: str, values: np.ndarray) -> str:
    """One mask; a dot stands where nothing is seen."""
    drawn = [text(4, 18, title, bold=True)]
    for (row, column), value in np.ndenumerate(values):
        x, y = 4 + column * CELL, 28 + row * CELL
        drawn.append(rect(x, y, CELL, CELL, fill=shade(value * 0.6), radius=0))
        if not value:
            drawn.append(
                f'<circle cx="{x + CELL / 2}" cy="{y + CELL / 2}" r="1.5" style="fill:var(--line)"/>'
            )
    return svg(max(TOKENS * CELL + 8, 154), TOKENS * CELL + 34, drawn)
