"""How the cache of some models grows with the length of the text."""

from __future__ import annotations

from figures.numbers import value
from figures.plots import Axes, log2

MODELS = {
    "llama:8b": ("accent", False),
    "deepseek-v3:671b": ("ink", False),
    "gpt-oss:20b": ("quiet", False),
    "mamba:2.8b": ("ink", True),
}
SIZES = {2**20: "1 MB", 2**25: "32 MB", 2**30: "1 GB", 2**35: "32 GB"}
LENGTHS = {2**8: "256", 2**11: "2,048", 2**14: "16,384", 2**17: "131,072"}
SAID = {
    "en": {"title": "Cache at 16 bits, state in float32", "x": "tokens"},
    "zh": {"title": "缓存（16 位）与状态（float32）", "x": "词元数"},
}


def draw(language: str) -> str:
    """A line a model, both axes doubling."""
    said = SAID[language]
    axes = Axes(
        (2**8, 2**17), (2**20, 2**35), width=366, height=290, left=48, right=124, x_scale=log2, y_scale=log2
    )
    axes.frame(said["title"], LENGTHS, SIZES, said["x"])
    for name, (colour, dashed) in MODELS.items():
        points = [(2**n, value(name, "cache.context", 2**n)) for n in range(8, 18)]
        axes.curve(points, colour=colour, dashed=dashed)
        axes.name(*points[-1], name, colour=colour, by=(8, 4))
    return axes.picture()
