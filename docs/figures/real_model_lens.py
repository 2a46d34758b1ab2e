"""The logit lens in SmolLM2: what the head reads at some depths, and how likely the answer is, beside a pocket."""

from __future__ import annotations

import math

from figures.parts import rect, svg, text
from figures.plots import Axes
from figures.real_model import POCKET, REAL, REAL_MODEL, by_depth
from figures.tour_marks import panels, said, shade

DEPTHS = (0, 1, 5, 10, 15, 20, 24, 26, 27, 28, 29, 30)  # 0 is the embedding, n what layer n - 1 leaves
LEFT, TOP, CELL, ROW = 88, 48, 82, 24
LEAST = 1e-9


def draw(language: str) -> str:
    """The table of tokens, and the curves."""
    return panels([table(language), curves(language)])


def table(language: str) -> str:
    """A row for each depth, a column for each token of the prompt."""
    found = REAL_MODEL["traces"]["lens"]["models"][REAL]
    names, depths = found["pieces"], [found["depths"][depth] for depth in DEPTHS]
    parts = [
        text(LEFT, 15, said(language, "The likeliest next token", "最可能的下一个词元"), size=13, bold=True)
    ]
    for column, name in enumerate(names):
        parts.append(text(LEFT + (column + 0.5) * CELL, TOP - 8, name, size=13, anchor="middle", bold=True))
    for row, (depth, read) in enumerate(zip(DEPTHS, depths, strict=True)):
        y = TOP + row * ROW
        layer = said(language, f"layer {depth - 1}", f"第 {depth - 1} 层")
        name = layer if depth else said(language, "embedding", "嵌入")
        parts.append(text(LEFT - 6, y + 16, name, size=13, anchor="end", colour="quiet"))
        for column, (token, chance) in enumerate(zip(read["tokens"], read["chances"], strict=True)):
            x, about = LEFT + column * CELL, f"{token} {chance:.2f}"
            parts.append(rect(x, y, CELL, ROW, fill=shade(chance, readable=True), radius=0, title=about))
            parts.append(text(x + CELL / 2, y + 16, token, size=12, anchor="middle"))
    return svg(LEFT + len(names) * CELL + 2, TOP + len(DEPTHS) * ROW + 2, parts)


def curves(language: str) -> str:
    """The probability of the answer after the last token, by depth, on a scale of powers of ten."""
    axes = Axes((0, 1), (LEAST, 1), width=340, height=270, y_scale=math.log10, left=60, right=36)
    title = said(language, "Probability of the answer", "答案的概率")
    y_ticks = {1.0: "1", 1e-3: "0.001", 1e-6: "10⁻⁶", 1e-9: "10⁻⁹"}
    x_ticks = {0.0: said(language, "embedding", "嵌入"), 1.0: said(language, "last layer", "最后一层")}
    axes.frame(title, x_ticks, y_ticks, said(language, "depth", "深度"))
    models = REAL_MODEL["traces"]["lens"]["models"]
    values = {
        name: [max(depth["answer"], LEAST) for depth in models[name]["depths"]] for name in (POCKET, REAL)
    }
    return by_depth(axes, language, values, {POCKET: 0.15, REAL: 0.02})
