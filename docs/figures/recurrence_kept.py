"""How long the states of recurrent pockets keep what each token left there."""

from __future__ import annotations

from functools import cache
from typing import Any

from figures.labelled import labelled
from figures.tour_marks import panels, pieces, said

PROMPT = "The capital city of China is"
MODELS = ("lstm", "gru", "mamba")
TOKENS = 4  # written after the prompt


@cache
def kept(name: str) -> tuple[list[str], Any]:
    """The pieces of a text that a pocket reads and writes, and what is left (T, T) of each after each, in its first layer.

    The mean over the numbers of the state of the product of the factors by which each token multiplied them.
    """
    import numpy as np

    import zoo

    loaded = zoo.load(name)
    trace = zoo.trace(loaded, PROMPT, max_tokens=TOKENS, only="layers.0.*")
    if name == "mamba":
        mixer = loaded.model.layers[0].mixer
        rates = -np.exp(np.array(mixer.A_log))  # (N, E)
        factors = np.exp(trace["layers.0.mixer.dt"][:, None] * rates)  # (T, N, E)
    else:
        factors = trace[f"layers.0.mixer.{'forget' if name == 'lstm' else 'update'}_gate"]  # (T, D)
    factors = factors.reshape(len(factors), -1)
    found = np.zeros((len(factors), len(factors)))
    for start in range(len(factors)):
        left = np.ones(factors.shape[1])
        for end in range(start, len(factors)):
            left = left if end == start else left * factors[end]
            found[end, start] = left.mean()
    words = pieces(loaded.tokenizer, [*trace.prompt, *trace.tokens])
    return words[: len(found)], found


def draw(language: str) -> str:
    """A map for each model."""
    drawn = []
    for name in MODELS:
        words, found = kept(name)
        title = said(language, f"{name}: first layer", f"{name}：第一层")
        drawn.append(labelled(found, words, words, title=title, across=16, down=18))
    return panels(drawn)
