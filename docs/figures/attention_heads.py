"""Heads with different habits, found by measuring all of the pocket's heads on one prompt."""

from __future__ import annotations

from functools import cache

import numpy as np

import zoo
from figures.parts import svg, text
from figures.tour_marks import grid, panels, pieces, said

TEXT = {
    "en": "The capital of France is Paris. The capital city of China is",
    "zh": "法国的首都是巴黎。中国的首都是",
}
COUNTRY = {"en": "␣China", "zh": "中"}
CELL = 16.0
LEFT, TOP = 74.0, 48.0


@cache
def patterns(language: str) -> tuple[list[str], dict[str, np.ndarray]]:
    """The pieces of the prompt, and the pattern (T, T) of each head by its address."""
    loaded = zoo.load("llama")
    trace = zoo.trace(loaded, TEXT[language], max_tokens=1, only="*.pattern")
    names = pieces(loaded.tokenizer, loaded.tokenizer.encode(TEXT[language]))
    found = {}
    for address in trace:
        for head, pattern in enumerate(np.array(trace[address])):
            found[f"{address}.{head}"] = pattern[: len(names), : len(names)]
    return names, found


def distance(pattern: np.ndarray) -> float:
    """How far back a token looks on average, in tokens."""
    places = np.arange(len(pattern))
    return float((pattern * (places[:, None] - places)).sum(axis=1).mean())


def habits(language: str) -> list[tuple[str, str, np.ndarray]]:
    """For each habit its name, and the address and pattern of the head that has it most."""
    names, heads = patterns(language)
    country = names.index(COUNTRY[language])

    def before(pattern: np.ndarray) -> float:
        return float(np.diagonal(pattern, -1).mean())

    def named(pattern: np.ndarray) -> float:
        return float(pattern[-1, country])

    wanted = (
        (said(language, "the token before", "前一个词元"), before),
        (said(language, "the country, from the last token", "末尾词元看向国家"), named),
        (said(language, "far back", "远处"), distance),
    )
    found = []
    for name, measure in wanted:
        address = max(heads, key=lambda head: measure(heads[head]))
        found.append((name, address, heads[address]))
    return found


def draw(language: str) -> str:
    """The maps of these heads, a row for each query."""
    names, _ = patterns(language)
    return panels([panel(title, address, pattern, names) for title, address, pattern in habits(language)])


def panel(title: str, address: str, pattern: np.ndarray, names: list[str]) -> str:
    """One map with its tokens at the left; the diagonal is the token itself."""
    side = len(names) * CELL
    drawn = [text(4, 18, title, bold=True), text(4, 36, address, colour="quiet", size=13)]
    drawn += [
        text(LEFT - 6, TOP + (row + 0.5) * CELL + 5, name, anchor="end", size=13)
        for row, name in enumerate(names)
    ]
    drawn.append(grid(pattern, LEFT, TOP, CELL, CELL, 1.0))
    return svg(LEFT + side + 4, TOP + side + 4, drawn)
