"""What LayerNorm and RMSNorm make of two tokens' vectors, one much longer than the other."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

import zoo
from figures.parts import line, rect, svg, text
from figures.tour_marks import panels
from zoo import recipe
from zoo.blocks.norm import LayerNorm, RMSNorm

PROMPT, ADDRESS, FEATURES = "The capital city of China is", "layers.3", 32
WIDTH, ROW = 225, 90
SAID = {
    "en": {"before": "before", "mean": "mean", "length": "length"},
    "zh": {"before": "归一化之前", "mean": "均值", "length": "长度"},
}


def draw(language: str) -> str:
    """Three panels, each with the first features of both tokens as bars, and their mean and length."""
    said = SAID[language]
    loaded = zoo.load("gpt2")
    trace = zoo.trace(loaded, PROMPT, max_tokens=1, only=ADDRESS)
    stream = trace[ADDRESS][: len(trace.prompt)]  # (T, D)
    ends = np.linalg.norm(stream, axis=-1)
    rows = (int(ends.argmax()), int(ends.argmin()))
    names = [loaded.tokenizer.decode([trace.prompt[row]]).strip() for row in rows]
    pair = mx.array(stream[list(rows)])  # (2, D)
    made = {
        said["before"]: pair,
        "LayerNorm": LayerNorm(recipe.LayerNorm(eps=1e-5), dim=pair.shape[-1])(pair),
        "RMSNorm": RMSNorm(recipe.RMSNorm(eps=1e-5), dim=pair.shape[-1])(pair),
    }
    return panels(panel(title, np.array(vectors), names, said) for title, vectors in made.items())


def panel(title: str, vectors: np.ndarray, names: list[str], said: dict[str, str]) -> str:
    """The features of each vector as bars around a line, both on one scale."""
    parts = [text(0, 15, title, size=13, bold=True)]
    most = np.abs(vectors[:, :FEATURES]).max()
    step = WIDTH / FEATURES
    for number, (vector, name) in enumerate(zip(vectors, names, strict=True)):
        middle = 68 + ROW * number
        mean = f"{round(float(vector.mean()), 2) + 0.0:.2f}".replace("-", "−")  # no −0.00
        words = f"{said['mean']} {mean}, {said['length']} {np.linalg.norm(vector):.1f}"
        parts.append(text(0, middle - 34, name, size=12, bold=True))
        parts.append(text(WIDTH, middle - 34, words, size=12, colour="quiet", anchor="end"))
        for index, value in enumerate(vector[:FEATURES]):
            high = 28 * abs(value) / most
            y = middle - high if value > 0 else middle
            parts.append(rect(index * step, y, step - 2, high, fill="var(--accent)", line="none", radius=0))
        parts.append(line([(0, middle), (WIDTH, middle)], colour="edge", width=1))
    return svg(WIDTH, 68 + ROW + 32, parts)
