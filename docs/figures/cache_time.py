"""The time of one more token with and without a cache, as the lab recorded it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import mean

from figures.plots import Axes, log2

RECORD = Path(__file__).parent.parent / "records" / "lab" / "cache.json"
ARMS = {
    "attention, no cache": ({"en": "attention, no cache", "zh": "注意力，无缓存"}, "accent", True),
    "attention, cached": ({"en": "attention, cached", "zh": "注意力，有缓存"}, "accent", False),
    "Mamba": ({"en": "Mamba", "zh": "Mamba"}, "ink", True),
    "LSTM": ({"en": "LSTM", "zh": "LSTM"}, "quiet", False),
}
SAID = {
    "en": {"title": "Milliseconds for one more token", "x": "tokens before it"},
    "zh": {"title": "再生成一个词元的时间（毫秒）", "x": "之前的词元数"},
}


def draw(language: str) -> str:
    """A line for each arm of the experiment: the mean of its runs, both axes in powers."""
    said = SAID[language]
    axes = Axes((16, 1024), (0.1, 1000), width=360, height=280, right=20, x_scale=log2, y_scale=math.log10)
    lengths = {16 * 4**n: f"{16 * 4**n:,}" for n in range(4)}
    axes.frame(said["title"], lengths, {0.1: "0.1", 1: "1", 10: "10", 100: "100", 1000: "1,000"}, said["x"])
    for number, (arm, (named, colour, dashed)) in enumerate(ARMS.items()):
        axes.curve(times(arm), colour=colour, dashed=dashed)
        height = 700 / 2.1**number  # the upper left of the chart is free
        axes.curve([(18, height), (26, height)], colour=colour, dashed=dashed)
        axes.name(29, height, named[language], by=(0, 4))
    return axes.picture()


def times(arm: str) -> list[tuple[float, float]]:
    """The mean time of a token in milliseconds after each number of tokens."""
    runs = [run for run in json.loads(RECORD.read_text(encoding="utf-8"))["runs"] if run["arm"] == arm]
    curves = [run["curves"]["time"] for run in runs]
    return [(points[0][0], mean(time for _, time in points)) for points in zip(*curves, strict=True)]
