"""What each position of a sentence is to predict, and what its target costs the pocket: −ln p in nats."""

from __future__ import annotations

from itertools import pairwise

from figures.costs import BAR, table
from figures.tour_marks import panels, pieces, said

SENTENCES = ("The capital city of China is Beijing.", "The capital city of China is Tokyo.")
FULL = 9.0  # nats of the longest bar


def costs(sentence: str) -> tuple[list[str], list[float]]:
    """The pieces of a sentence, and −ln p of each but the first."""
    import mlx.core as mx

    import zoo
    from zoo.training.loss import token_losses

    loaded = zoo.load("llama")
    ids = loaded.tokenizer.encode(sentence)
    losses = token_losses(loaded.model(mx.array([ids[:-1]])), mx.array([ids[1:]]))  # (1, T)
    return pieces(loaded.tokenizer, ids), losses[0].tolist()


def draw(language: str) -> str:
    """A panel a sentence: a row for each position."""
    heads = (
        (0, said(language, "input", "输入")),
        (92, said(language, "target", "目标")),
        (BAR, said(language, "−ln p (nats)", "−ln p（奈特）")),
    )
    drawn = []
    for sentence in SENTENCES:
        words, losses = costs(sentence)
        mean = said(language, "mean: the loss", "平均值，即损失"), sum(losses) / len(losses)
        rows = list(zip(pairwise(words), losses, strict=True))
        drawn.append(table(sentence, heads, rows, [mean], FULL))
    return panels(drawn)
