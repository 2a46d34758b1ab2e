"""Which parts of some models hold their parameters, one bar a model."""

from __future__ import annotations

from figures.numbers import FEEDFORWARD, counted, parameters
from figures.parts import rect, svg, text

MODELS = ("transformer:base", "gpt2:small", "llama:8b", "mixtral:8x7b", "deepseek-v3:671b")
PARTS = (
    (("embedding", "head", "positions"), {"en": "embedding, head", "zh": "嵌入与输出头"}, "var(--box)"),
    (("attention", "cross_attention"), {"en": "attention", "zh": "注意力"}, "var(--tint)"),
    (FEEDFORWARD, {"en": "feed-forward", "zh": "前馈网络"}, "var(--accent)"),
)
WIDTH, BAR = 360, 24


def draw(language: str) -> str:
    """A bar for each model, and above them what the colours mean."""
    parts, x = [], 0.0
    for _, said, fill in PARTS:
        parts += [rect(x, 3, 14, 14, fill=fill, radius=2), text(x + 20, 15, said[language], size=13)]
        x += 36 + 6.8 * len(said["en"])
    y = 46.0
    for name in MODELS:
        total = parameters(name, "total")
        parts.append(text(0, y, name, size=13, bold=True))
        parts.append(text(WIDTH, y, counted(total, language), size=13, colour="quiet", anchor="end"))
        x = 0.0
        for fields, said, fill in PARTS:
            share = parameters(name, *fields) / total
            width = share * WIDTH
            title = f"{said[language]}: {100 * share:.1f} %"
            parts.append(rect(x, y + 7, width, BAR, fill=fill, radius=0, title=title))
            if share > 0.1:
                colour = "ground" if fill == "var(--accent)" else "ink"
                middle = x + width / 2
                words = f"{100 * share:.0f} %"
                parts.append(text(middle, y + 24, words, size=13, colour=colour, anchor="middle"))
            x += width
        y += 62
    return svg(WIDTH, y - 18, parts)
