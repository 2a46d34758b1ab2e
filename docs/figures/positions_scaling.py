"""What the scalings of RoPE do to each pair: its speed, as a share of what it was."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from figures.parts import line, svg, text
from figures.tour_marks import panels, said
from zoo import recipe
from zoo.blocks.position import DynamicScaling, LinearScaling, Llama3Scaling, YarnScaling, frequencies

FACTOR = 8.0
CONTEXT = 8192
DIMS, THETA = 128, 500000.0
LEFT, TOP, RIGHT, BOTTOM = 44.0, 20.0, 320.0, 196.0


def speeds() -> dict[str, np.ndarray]:
    """The scaled frequency of each pair ÷ the unscaled one, (d/2,), of each scaling at FACTOR times the context."""
    base = frequencies(THETA, DIMS)
    of_length = DynamicScaling(recipe.DynamicScaling(FACTOR, CONTEXT), dim=DIMS)
    wavelengths = {
        "linear": LinearScaling(recipe.LinearScaling(FACTOR), dim=DIMS).wavelengths(base),
        "dynamic": of_length.wavelengths_at(mx.array(FACTOR * CONTEXT), THETA, DIMS),
        "yarn": YarnScaling(recipe.YarnScaling(FACTOR, CONTEXT), dim=DIMS).wavelengths(base),
        "llama3": Llama3Scaling(recipe.Llama3Scaling(FACTOR, 1.0, 4.0, CONTEXT), dim=DIMS).wavelengths(base),
    }
    return {name: 1 / np.array(found) / np.array(base) for name, found in wavelengths.items()}


def draw(language: str) -> str:
    """One small plot for each scaling."""
    return panels([plot(name, values, language) for name, values in speeds().items()])


def plot(name: str, values: np.ndarray, language: str) -> str:
    """The share over the pairs, fast ones at the left."""
    pairs = len(values)
    points = [
        (LEFT + (RIGHT - LEFT) * k / (pairs - 1), BOTTOM - (BOTTOM - TOP - 20) * value)
        for k, value in enumerate(values.tolist())
    ]
    drawn = [
        text(LEFT, 14, name, bold=True),
        line([(LEFT, TOP + 4), (LEFT, BOTTOM), (RIGHT, BOTTOM)], colour="edge"),
        line([(LEFT, TOP + 20), (RIGHT, TOP + 20)], colour="edge", dashed=True),
        text(LEFT - 6, TOP + 25, "1", anchor="end", colour="quiet"),
        text(
            LEFT - 6,
            BOTTOM - (BOTTOM - TOP - 20) / FACTOR + 5,
            f"1/{FACTOR:.0f}",
            anchor="end",
            colour="quiet",
        ),
        line(points, colour="accent", width=2.5),
        text(LEFT, BOTTOM + 18, said(language, "pair 0, fast", "第 0 对，快"), colour="quiet"),
        text(
            RIGHT,
            BOTTOM + 18,
            said(language, f"pair {pairs - 1}, slow", f"第 {pairs - 1} 对，慢"),
            anchor="end",
            colour="quiet",
        ),
    ]
    return svg(330, BOTTOM + 26, drawn)
