"""How long the tokens' vectors are after the embedding and after each layer, in pockets whose norms stand differently."""

from __future__ import annotations

import math

import numpy as np

import zoo
from figures.plots import Axes
from figures.seen import held_out, values_on

SENTENCES, LAYERS = 20, 4
MODELS = {  # name: placement of the norms, colour, dashed
    "llama": ({"en": "llama, Pre-LN", "zh": "llama，前置"}, "accent", False),
    "gpt2": ({"en": "gpt2, Pre-LN", "zh": "gpt2，前置"}, "accent", True),
    "gemma2": ({"en": "gemma2, sandwich", "zh": "gemma2，夹心"}, "quiet", False),
    "gpt2-postln": ({"en": "gpt2, Post-LN", "zh": "gpt2，后置"}, "ink", False),
}
SAID = {
    "en": {"title": "Length of the residual stream", "first": "embedding", "layer": "after layer"},
    "zh": {"title": "残差流的长度", "first": "嵌入", "layer": "第几层之后"},
}


def draw(language: str) -> str:
    """A line for each model."""
    said = SAID[language]
    curves = {name: lengths(name) for name in MODELS}
    most = 10 * math.ceil(max(max(curve) for curve in curves.values()) / 10)
    axes = Axes((0, LAYERS), (0, most), width=366, height=260, left=40, right=124)
    places = {0: said["first"]} | {n + 1: f"{n}" for n in range(LAYERS)}
    axes.frame(said["title"], places, {value: f"{value}" for value in range(0, most + 1, 10)}, said["layer"])
    ends = []
    for name, (named, colour, dashed) in MODELS.items():
        found = curves[name]
        axes.curve(list(enumerate(found)), colour=colour, dashed=dashed, dots=True)
        ends.append((axes.at(LAYERS, found[-1])[1], found[-1], named[language], colour))
    height = -math.inf
    for y, value, words, colour in sorted(
        ends
    ):  # names of lines that end close together stand below one another
        height = max(y, height + 15)
        axes.name(LAYERS, value, words, colour=colour, by=(8, height - y + 4))
    return axes.picture()


def lengths(name: str) -> list[float]:
    """The median length of a token's vector after the embedding and after each layer."""
    loaded = zoo.load(name)
    addresses = ["embedding", *(f"layers.{layer}" for layer in range(LAYERS))]
    found = [
        np.stack([np.linalg.norm(value, axis=-1) for value in values], axis=-1)  # (T, 1 + L)
        for _, values in values_on(loaded, held_out(SENTENCES), addresses)
    ]
    return [float(value) for value in np.median(np.concatenate(found), axis=0)]
