"""Where the decoder of the 2017 Transformer's pocket looks in the source as it writes each token, head by head."""

from __future__ import annotations

from functools import cache
from typing import Any

from figures.labelled import labelled
from figures.tour_marks import panels, pieces, said

SENTENCE = "I love NLP because it is interesting."


@cache
def seen() -> tuple[list[str], list[str], Any]:
    """The source's pieces, those written, and the pattern (H, T, S) of the last layer's cross-attention."""
    import zoo

    loaded = zoo.load("transformer")
    trace = zoo.trace(loaded, SENTENCE, max_tokens=32, only="*.cross.pattern")
    pattern = trace[trace.patterns[-1]][:, : len(trace.tokens)]  # the row that chose each token
    return pieces(loaded.tokenizer, trace.prompt), pieces(loaded.tokenizer, trace.tokens), pattern


def draw(language: str) -> str:
    """The mean of the heads, then each head."""
    source, target, pattern = seen()
    target = [*target[:-1], said(language, "end", "结束")]
    mean = labelled(
        pattern.mean(axis=0),
        target,
        source,
        title=said(language, "mean of the heads", "各头的平均"),
        across=24,
        down=22,
    )
    heads = [
        labelled(
            head,
            target,
            source,
            title=said(language, f"head {number}", f"头 {number}"),
            across=15,
            down=18,
        )
        for number, head in enumerate(pattern)
    ]
    return panels([mean, *heads])
