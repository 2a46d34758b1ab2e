"""How alike BERT's pocket finds sentences: the cosine of the angle between their vectors."""

from __future__ import annotations

from functools import cache
from typing import Any

from figures.labelled import labelled
from figures.parts import svg, text
from figures.tour_marks import panels, said

SENTENCES = (
    "The capital city of China is Beijing.",
    "Beijing is the capital of China.",
    "中国的首都是北京。",
    "The capital city of France is Paris.",
    "法国的首都是巴黎。",
    "The currency of Japan is the yen.",
    "日本的货币是日元。",
)


@cache
def cosines() -> Any:
    """The cosines (N, N)."""
    import numpy as np

    import zoo

    vectors = np.array(zoo.embed(zoo.load("bert"), SENTENCES, normalise=True))  # (N, D)
    return vectors @ vectors.T


def draw(language: str) -> str:
    """The cosines as a grid, and the sentences by their numbers."""
    names = [str(number + 1) for number in range(len(SENTENCES))]
    title = said(language, "cosine of each pair", "每一对的余弦")
    grid = labelled(cosines(), names, names, title=title, across=40, down=28, written=True)
    listed = [
        text(0, 44 + 28 * index, f"{name}  {sentence}", size=13)
        for index, (name, sentence) in enumerate(zip(names, SENTENCES, strict=True))
    ]
    return panels((grid, svg(300, 46 + 28 * len(listed), listed)))
