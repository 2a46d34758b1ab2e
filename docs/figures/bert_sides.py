"""Which tokens each token looks at: in BERT's pocket those on both sides, in GPT-2's those before it."""

from __future__ import annotations

from functools import cache
from typing import Any

from figures.labelled import labelled
from figures.tour_marks import panels, pieces, said

MASKED = "The capital city of [MASK] is Beijing."


@cache
def looked(name: str, text: str) -> tuple[list[str], Any]:
    """The pieces of a text, and the last layer's pattern (H, T, T) of a pocket that reads it."""
    import zoo

    loaded = zoo.load(name)
    settings: dict[str, Any] = {"max_tokens": 1} if name == "gpt2" else {}
    trace = zoo.trace(loaded, text, only="layers.*.mixer.pattern", **settings)
    count = len(trace.prompt)
    words = pieces(loaded.tokenizer, trace.prompt)
    return words, trace[trace.patterns[-1]][:, :count, :count]


def draw(language: str) -> str:
    """The mean of the last layer's heads in both."""
    drawn = []
    for name, text in (("bert", MASKED), ("gpt2", MASKED.replace(" [MASK]", " China"))):
        words, pattern = looked(name, text)
        title = said(language, f"{name}: last layer, mean of heads", f"{name}：最后一层各头的平均")
        drawn.append(labelled(pattern.mean(axis=0), words, words, title=title, across=22, down=22))
    return panels(drawn)
