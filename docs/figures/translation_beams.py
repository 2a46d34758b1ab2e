"""What a translation costs the 2017 Transformer's pocket token by token, found greedily and by beam search."""

from __future__ import annotations

from functools import cache

from figures.costs import table
from figures.tour_marks import panels, pieces, said

SENTENCE = "The doctor does not know why."
BEAMS = (1, 2)
FULL = 5.0  # nats of the longest bar


@cache
def found(beams: int) -> tuple[str, list[str], list[float]]:
    """The text with so many beams, its pieces, and −ln p of each."""
    import mlx.core as mx

    import zoo
    from zoo.training.loss import token_losses

    loaded = zoo.load("transformer")
    steps = list(zoo.stream(loaded, SENTENCE, beams=beams))
    ids = [step.token for step in steps if step.token is not None]
    source = mx.array([loaded.tokenizer.encode(SENTENCE)])
    given = mx.array([[loaded.recipe.start, *ids[:-1]]])
    costs = token_losses(loaded.model(source, given), mx.array([ids]))[0].tolist()
    return "".join(step.text for step in steps), pieces(loaded.tokenizer, ids), costs


def draw(language: str) -> str:
    """A panel for each number of beams."""
    heads = (
        (0, said(language, "written", "写出的词元")),
        (100, said(language, "−ln p (nats)", "−ln p（奈特）")),
    )
    drawn = []
    for beams in BEAMS:
        _, words, costs = found(beams)
        words = [*words[:-1], said(language, "end", "结束")]
        title = (
            said(language, "greedy: one beam", "贪心：一个束")
            if beams == 1
            else said(language, f"{beams} beams", f"{beams} 个束")
        )
        sums = [
            (said(language, "sum: ln p of the text", "总和：整句的 ln p"), -sum(costs)),
            (said(language, "score: sum / length", "得分：总和 / 长度"), -sum(costs) / len(costs)),
        ]
        rows = [((word,), cost) for word, cost in zip(words, costs, strict=True)]
        drawn.append(table(title, heads, rows, sums, FULL))
    return panels(drawn)
