"""One pass of masked diffusion. Axes: L tokens of the text, V vocabulary."""

import mlx.core as mx

from formulas.attention import softmax


def unmask(model, x, mask, count):  # (L) -> (L)
    """Predict every mask, and keep the `count` surest predictions; the others stay masked."""
    p = softmax(model(x))  # (L, V), no causal mask
    guess, sure = p.argmax(axis=-1), p.max(axis=-1)
    sure = mx.where(x == mask, sure, -1.0)  # a token that is there already is not chosen again
    kept = mx.argsort(-sure)[:count]
    x = mx.array(x)
    x[kept] = guess[kept]
    return x
