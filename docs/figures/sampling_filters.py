"""Which candidates top-k, top-p and min-p keep, for a certain, an undecided and an open next token."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

import zoo
from figures.parts import rect, svg, text
from figures.tour_marks import panels
from zoo.generation.sampling.draw import min_p, top_k, top_p
from zoo.generation.sampling.logits import NEG_INF

PROMPTS = ("The capital city of China is", "One of the countries of", "The capital of")
FILTERS = (("top-k 5", top_k, 5), ("top-p 0.9", top_p, 0.9), ("min-p 0.1", min_p, 0.1))
SHOWN, ROW, BARS, LEFT, COLUMN = 9, 20, 36, 58, 38
KEPT = {"en": "kept", "zh": "保留"}
BITS = {"en": "{:.1f} bits", "zh": "{:.1f} 比特"}


def draw(language: str) -> str:
    """A panel a prompt: the likeliest tokens with their probabilities, and a column of marks for each filter."""
    loaded = zoo.load("llama")
    return panels(panel(loaded, prompt, language) for prompt in PROMPTS)


def panel(loaded: zoo.Loaded, prompt: str, language: str) -> str:
    """The candidates after one prompt."""
    logits = loaded.model(mx.array([loaded.tokenizer.encode(prompt)]))[:, -1].astype(mx.float32)  # (1, V)
    probabilities = np.array(mx.softmax(logits, axis=-1))[0]
    order = np.argsort(-probabilities, kind="stable")[:SHOWN]
    entropy = -float((probabilities * np.log2(np.maximum(probabilities, 1e-30))).sum())
    columns = [LEFT + BARS + 40 + COLUMN * number for number in range(len(FILTERS))]
    parts = [
        text(0, 15, f"{prompt} …", size=13, bold=True),
        text(0, 34, BITS[language].format(entropy), size=12, colour="quiet"),
    ]
    for x, (name, _, _) in zip(columns, FILTERS, strict=True):
        for y, words in zip((34, 49), name.split(), strict=True):
            parts.append(text(x, y, words, size=12, colour="quiet", anchor="middle"))
    for row, token in enumerate(order.tolist()):
        y = 56 + ROW * row
        share = probabilities[token]
        parts.append(text(LEFT - 6, y + 14, loaded.tokenizer.decode([token]).strip(), size=12, anchor="end"))
        parts.append(rect(LEFT, y + 3, max(1, BARS * share), 13, fill="var(--accent)", line="none", radius=1))
        parts.append(text(LEFT + 4 + BARS * share, y + 14, f"{share:.2f}", size=11, colour="quiet"))
    bottom = 56 + ROW * SHOWN + 16
    parts.append(text(LEFT + BARS + 22, bottom, KEPT[language], size=12, colour="quiet", anchor="end"))
    for x, (_, narrow, setting) in zip(columns, FILTERS, strict=True):
        kept = np.array(narrow(logits, setting))[0] > NEG_INF
        for row, token in enumerate(order.tolist()):
            fill = "var(--accent)" if kept[token] else "none"
            parts.append(rect(x - 6, 56 + ROW * row + 3, 13, 13, fill=fill, line="var(--line)", radius=7))
        parts.append(text(x, bottom, f"{kept.sum():,}", size=12, bold=True, anchor="middle"))
    return svg(LEFT + BARS + 40 + COLUMN * len(FILTERS) - 20, bottom + 6, parts)
