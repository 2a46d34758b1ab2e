"""Which drafted tokens stand, so that the text has the law of the target model alone.

Pure functions on probabilities. Axes: V vocabulary. p is the target's law of a token, q the law that the draft was drawn
from (Leviathan et al., 2023, section 2.3; Chen et al., 2023, algorithm 2).
"""

from __future__ import annotations

import mlx.core as mx


def accept(p: mx.array, q: mx.array, token: mx.array, key: mx.array) -> tuple[mx.array, mx.array]:
    """Whether a token drawn from q stands, (), and the token to take, (): itself, or one drawn from the residual.

    p and q are (V,), `token` () is an id of which q > 0. It stands with probability min(1, p / q); where it does not,
    a token is drawn from max(p − q, 0), renormalised. The token taken then has the law p, whatever q is.
    Nothing is evaluated.
    """
    for_test, for_draw = mx.random.split(key)
    uniform = mx.random.uniform(key=for_test)  # in [0, 1): a token with p = 0 never stands
    stands = uniform * q[token] < p[token]
    other = mx.random.categorical(mx.log(residual(p, q)), key=for_draw)
    return stands, mx.where(stands, token, other)


def residual(p: mx.array, q: mx.array) -> mx.array:
    """What a token is drawn from in the place of a rejected one: max(p − q, 0) / Σ max(p − q, 0), (V,) and (V,) -> (V,).

    Where q covers p but for rounding, no token is ever rejected but for rounding, and the residual is p.
    """
    rest = mx.maximum(p - q, 0)
    total = rest.sum()
    return mx.where(total > 0, rest / mx.where(total > 0, total, 1), p)
