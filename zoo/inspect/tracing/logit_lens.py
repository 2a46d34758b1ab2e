"""The logit lens: the residual stream after each layer, read by the model's own final norm and head.

nostalgebraist, 2020, "interpreting GPT: the logit lens". Axes: B batch (1), T tokens, D width, V vocabulary.
"""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from zoo.frozen import Frozen, frozen
from zoo.generation.sampling.logits import logprobs

ROWS = 64  # tokens whose logits over the whole vocabulary are held at once


@frozen()
class LensPrediction(Frozen):
    """What the head predicts from the residual stream at `address`, for each position of the text.

    `tokens` and `probabilities` (T, k) are the most likely tokens, the best first; `entropy_bits` (T,) is that of the whole
    distribution. `track` names the tokens whose positions these are: "text", or "target" in an encoder-decoder.
    """

    address: str
    track: str
    tokens: tuple[tuple[int, ...], ...]
    probabilities: tuple[tuple[float, ...], ...]
    entropy_bits: tuple[float, ...]


def lens_prediction(
    model: nn.Module, address: str, track: str, stream: mx.array, count: int
) -> LensPrediction:  # (1, T, D)
    """The `count` most likely tokens that `model`, with a `head` and perhaps a `norm`, predicts from a residual stream."""
    tokens, probabilities, entropy = [], [], []
    for start in range(0, stream.shape[1], ROWS):
        x = stream[:, start : start + ROWS]
        each = logprobs(model.head(model.norm(x) if "norm" in model else x)[0])  # (T, V)
        best = mx.argsort(-each, axis=-1)[:, :count]
        chosen = mx.exp(mx.take_along_axis(each, best, axis=-1))
        bits = -(mx.exp(each) * mx.maximum(each, -1e30)).sum(axis=-1) / float(np.log(2))
        mx.eval(best, chosen, bits)
        tokens += [tuple(row) for row in best.tolist()]
        probabilities += [tuple(row) for row in chosen.tolist()]
        entropy += bits.tolist()
    return LensPrediction(address, track, tuple(tokens), tuple(probabilities), tuple(entropy))
