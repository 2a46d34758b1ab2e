"""The share of each head's attention that goes to its sink, for every token of a prompt; of the pocket of gpt-oss."""

from __future__ import annotations

from functools import cache

import numpy as np

import zoo
from figures.parts import svg, text
from figures.tour_marks import PROMPT, grid, panels, pieces, said

CELL, ROW = 30.0, 15.0
LEFT, TOP = 86.0, 10.0


@cache
def sinks(language: str) -> tuple[list[str], np.ndarray]:
    """The pieces of the prompt, and the sinks' shares: (layers, heads, T)."""
    loaded = zoo.load("gpt-oss")
    trace = zoo.trace(loaded, PROMPT[language], max_tokens=1, only="*.sink")
    names = pieces(loaded.tokenizer, loaded.tokenizer.encode(PROMPT[language]))
    return names, np.stack([np.array(trace[address]) for address in trace])[:, :, : len(names)]


def mean_share(language: str) -> float:
    """The mean over layers, heads and tokens."""
    return float(sinks(language)[1].mean())


def draw(language: str) -> str:
    """A block of rows for each layer, a row for each head, a column for each token."""
    names, shares = sinks(language)
    layers, heads, length = shares.shape
    drawn = []
    for layer in range(layers):
        y = TOP + layer * (heads * ROW + 10)
        drawn.append(
            text(
                LEFT - 8,
                y + heads * ROW / 2 + 5,
                said(language, f"layer {layer}", f"第 {layer} 层"),
                anchor="end",
            )
        )
        drawn.append(grid(shares[layer], LEFT, y, CELL, ROW, 1.0))
    foot = TOP + layers * (heads * ROW + 10)
    for index, name in enumerate(names):
        x = LEFT + (index + 0.5) * CELL
        drawn.append(
            text(x, foot + 8, name, anchor="end", size=13, more=f'transform="rotate(-55 {x} {foot + 8})"')
        )
    return panels([svg(LEFT + length * CELL + 8, foot + 56, drawn)])
