"""Rejection sampling of drafts, so that the text has the distribution of the target model alone.

Pure functions on probabilities. Axes: V vocabulary. p is the target's distribution of a token, q the one that the draft
was sampled from (Leviathan et al., 2023, section 2.3; Chen et al., 2023, algorithm 2).
"""

from __future__ import annotations

import mlx.core as mx


def accept(p: mx.array, q: mx.array, token: mx.array, key: mx.array) -> tuple[mx.array, mx.array]:
    """Whether a token sampled from q is accepted, (), and the token to use, (): itself or one sampled from the residual.

    p and q are (V,), `token` () is an id with q > 0. It is accepted with probability min(1, p / q). The token to use then
    has the distribution p, whatever q is. Nothing is evaluated.
    """
    for_test, for_draw = mx.random.split(key)
    uniform = mx.random.uniform(key=for_test)  # in [0, 1): a token with p = 0 is never accepted
    accepted = uniform * q[token] < p[token]
    other = mx.random.categorical(mx.log(residual(p, q)), key=for_draw)
    return accepted, mx.where(accepted, token, other)


def residual(p: mx.array, q: mx.array) -> mx.array:
    """The distribution that replaces a rejected token: max(p − q, 0) / Σ max(p − q, 0), (V,) and (V,) -> (V,).

    It is p where q equals p up to rounding, and so tokens are only rejected by rounding.
    """
    rest = mx.maximum(p - q, 0)
    total = rest.sum()
    return mx.where(total > 0, rest / mx.where(total > 0, total, 1), p)
