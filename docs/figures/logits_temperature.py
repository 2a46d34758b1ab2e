"""How the probabilities of the likeliest tokens change with the temperature."""

from __future__ import annotations

import mlx.core as mx

import zoo
from figures.plots import Axes, log2

PROMPT, LIKELIEST = "One of the countries of", 5
LINES = (("accent", False), ("ink", False), ("quiet", False), ("ink", True), ("quiet", True))
SAID = {
    "en": {"title": "Probability of the next token", "x": "temperature"},
    "zh": {"title": "下一个词元的概率", "x": "温度"},
}


def draw(language: str) -> str:
    """A line for each of the likeliest tokens, from a temperature of a quarter to one of four."""
    said = SAID[language]
    axes = Axes((0.25, 4), (0, 1), width=360, height=270, x_scale=log2)
    ticks = {0.25: "0.25", 0.5: "0.5", 1: "1", 2: "2", 4: "4"}
    axes.frame(said["title"], ticks, {0: "0", 0.25: "0.25", 0.5: "0.5", 0.75: "0.75", 1: "1"}, said["x"])
    loaded = zoo.load("llama")
    logits = loaded.model(mx.array([loaded.tokenizer.encode(PROMPT)]))[0, -1].astype(mx.float32)  # (V,)
    best = mx.argsort(-logits)[:LIKELIEST].tolist()
    temperatures = [2 ** (step / 10) for step in range(-20, 21)]
    shares = [mx.softmax(logits / temperature).tolist() for temperature in temperatures]
    for number, (token, (colour, dashed)) in enumerate(zip(best, LINES, strict=True)):
        values = [
            (temperature, share[token]) for temperature, share in zip(temperatures, shares, strict=True)
        ]
        axes.curve(values, colour=colour, dashed=dashed)
        height = 0.95 - 0.085 * number  # the upper right of the chart is free
        axes.curve([(1.6, height), (1.95, height)], colour=colour, dashed=dashed)
        axes.name(2.1, height, loaded.tokenizer.decode([token]).strip(), by=(0, 4))
    return axes.picture()
