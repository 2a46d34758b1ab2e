"""A table of tokens with a bar for what each costs a model, −ln p in nats."""

from __future__ import annotations

from collections.abc import Sequence

from figures.parts import line, rect, svg, text

WIDTH, ROW, TOP = 340, 24, 46
BAR, END = 176, 292  # where bars begin, and where the longest one ends


def table(
    title: str,
    heads: Sequence[tuple[float, str]],
    rows: Sequence[tuple[Sequence[str], float]],
    sums: Sequence[tuple[str, float]],
    full: float,
) -> str:
    """A row for each token: its words, in the columns of `heads` (x, head), and its cost.

    The last head is that of the bars, the longest of which stands for `full` nats. `sums` are written below, each with
    its name.
    """
    parts = [text(0, 14, title, size=13, bold=True)]
    parts += [text(x, 36, head, size=12, colour="quiet") for x, head in heads]
    for index, (words, cost) in enumerate(rows):
        y = TOP + index * ROW
        parts += [text(x, y + 15, word, size=13) for (x, _), word in zip(heads, words, strict=False)]
        if len(words) == 2:
            x = heads[1][0]
            parts.append(line([(x - 26, y + 11), (x - 10, y + 11)], width=1.2))
        x = heads[-1][0]
        length = max(cost / full * (END - x), 1)
        parts.append(rect(x, y + 3, length, ROW - 8, fill="var(--accent)", line="none", radius=2))
        parts.append(text(WIDTH, y + 15, f"{cost:.2f}", size=13, anchor="end"))
    y = TOP + len(rows) * ROW + 4
    parts.append(line([(0, y), (WIDTH, y)], colour="edge", width=1))
    for name, value in sums:
        parts.append(text(0, y + 19, name, size=13, bold=True))
        parts.append(text(WIDTH, y + 19, f"{value:.2f}".replace("-", "−"), size=13, anchor="end", bold=True))
        y += ROW
    return svg(WIDTH, y + 8, parts)
