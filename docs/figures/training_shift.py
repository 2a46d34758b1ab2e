"""What each position of a sentence is to predict, and what its target costs the pocket: −ln p in nats."""

from __future__ import annotations

from figures.parts import line, rect, svg, text
from figures.tour_marks import panels, pieces, said

SENTENCES = ("The capital city of China is Beijing.", "The capital city of China is Tokyo.")
WIDTH, ROW, TOP = 340, 24, 46
INPUT, TARGET, BAR, END = 0, 92, 176, 296
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
    return panels(_panel(sentence, language) for sentence in SENTENCES)


def _panel(sentence: str, language: str) -> str:
    words, losses = costs(sentence)
    heads = ((INPUT, "input", "输入"), (TARGET, "target", "目标"), (BAR, "−ln p (nats)", "−ln p（奈特）"))
    parts = [text(0, 14, sentence, size=13, bold=True)]
    parts += [
        text(x, 36, said(language, english, chinese), size=12, colour="quiet")
        for x, english, chinese in heads
    ]
    for index, loss in enumerate(losses):
        y = TOP + index * ROW
        parts.append(text(INPUT, y + 15, words[index], size=13))
        parts.append(line([(TARGET - 26, y + 11), (TARGET - 10, y + 11)], width=1.2))
        parts.append(text(TARGET, y + 15, words[index + 1], size=13))
        length = max(loss / FULL * (END - BAR), 1)
        parts.append(rect(BAR, y + 3, length, ROW - 8, fill="var(--accent)", line="none", radius=2))
        parts.append(text(WIDTH, y + 15, f"{loss:.2f}", size=13, anchor="end"))
    mean = sum(losses) / len(losses)
    y = TOP + len(losses) * ROW + 4
    parts.append(line([(0, y), (WIDTH, y)], colour="edge", width=1))
    parts.append(text(0, y + 19, said(language, "mean: the loss", "平均值，即损失"), size=13, bold=True))
    parts.append(text(WIDTH, y + 19, f"{mean:.2f}", size=13, anchor="end", bold=True))
    return svg(WIDTH, y + 28, parts)
