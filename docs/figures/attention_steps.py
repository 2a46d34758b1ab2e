"""One head's attention in three steps: scores, mask, softmax; of the pocket, with all numbers."""

from __future__ import annotations

from functools import cache

import mlx.core as mx
import numpy as np

import zoo
from figures.parts import rect, svg, text
from figures.tour_marks import PROMPT, panels, pieces, said, shade

HEADS = {"en": (1, 2), "zh": (2, 2)}  # a layer and a head that looks from the last token at the country
WIDTH, HEIGHT = 44.0, 28.0
LEFT, TOP = 74.0, 58.0


@cache
def steps(language: str) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The pieces of the prompt, the scores (T, T) and the pattern (T, T) of one head."""
    layer, head = HEADS[language]
    loaded = zoo.load("llama")
    ids = loaded.tokenizer.encode(PROMPT[language])
    trace = zoo.trace(loaded, PROMPT[language], max_tokens=1)
    at = f"layers.{layer}.mixer"
    length = len(ids)
    mixer = loaded.model.layers[layer].mixer
    queries, keys, _ = mixer.project(mx.array(trace[f"layers.{layer}.mixer_norm"])[None, :length])
    queries, keys = mixer.rotate(queries, 0), mixer.rotate(keys, 0)
    key = keys[0, head // (mixer.heads // mixer.kv_heads)]
    scores = np.array(queries[0, head] @ key.T) * mixer.scale
    pattern = np.array(trace[f"{at}.pattern"])[head, :length, :length]
    return pieces(loaded.tokenizer, ids), scores, pattern


def draw(language: str) -> str:
    """The three matrices, one row a query."""
    names, scores, pattern = steps(language)
    hidden = np.triu(np.ones_like(scores, dtype=bool), 1)
    strongest = float(np.abs(scores).max())
    titles = (
        said(language, "1. scores q·k / √d", "1. 分数 q·k / √d"),
        said(language, "2. later tokens masked", "2. 遮蔽后面的词元"),
        said(language, "3. softmax of each row", "3. 逐行 softmax"),
    )
    shown = (scores / strongest, np.where(hidden, 0, scores / strongest), pattern)
    written = (
        [[f"{value:.1f}" for value in row] for row in scores],
        [
            ["−∞" if off else f"{value:.1f}" for value, off in zip(*rows, strict=True)]
            for rows in zip(scores, hidden, strict=True)
        ],
        [
            ["0" if off else f"{value:.2f}" for value, off in zip(*rows, strict=True)]
            for rows in zip(pattern, hidden, strict=True)
        ],
    )
    return panels(
        [
            matrix(title, names, values, words)
            for title, values, words in zip(titles, shown, written, strict=True)
        ]
    )


def matrix(title: str, names: list[str], values: np.ndarray, written: list[list[str]]) -> str:
    """A matrix with its title, its rows and columns named, its numbers in the cells."""
    drawn = [text(LEFT, 18, title, bold=True)]
    for index, name in enumerate(names):
        short = name if len(name) < 6 else name[:4] + "…"
        drawn.append(
            text(LEFT + (index + 0.5) * WIDTH, 46, short, anchor="middle", size=12.5, colour="quiet")
        )
        drawn.append(text(LEFT - 6, TOP + index * HEIGHT + 19, name, anchor="end", size=13))
    for down, (row, words) in enumerate(zip(values.tolist(), written, strict=True)):
        for across, (value, word) in enumerate(zip(row, words, strict=True)):
            x, y = LEFT + across * WIDTH, TOP + down * HEIGHT
            drawn.append(rect(x, y, WIDTH, HEIGHT, fill=shade(value, readable=True), radius=0))
            colour = "quiet" if word in ("−∞", "0") else "ink"
            drawn.append(
                text(x + WIDTH / 2, y + 19, word.replace("-", "−"), anchor="middle", size=13, colour=colour)
            )
    side = len(names)
    return svg(LEFT + side * WIDTH + 2, TOP + side * HEIGHT + 4, drawn)
