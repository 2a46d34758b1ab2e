"""Position encodings. Axes: T tokens, D width, d width of a head; i is a place, k a pair of dimensions."""

import mlx.core as mx


def learned(E, P, ids):  # (V, D), (context, D), (T) -> (T, D)
    """The token's row of one table plus the place's row of another."""
    i = mx.arange(len(ids))
    return E[ids] + P[i]


def sinusoidal(T, D, theta=10000.0):  # -> (T, D)
    """A sine and a cosine for each pair of dimensions, from fast to slow."""
    i = mx.arange(T)[:, None]  # (T, 1)
    k = mx.arange(D // 2)  # (D/2)
    angle = i * theta ** (-2 * k / D)  # (T, D/2)
    P = mx.stack([mx.sin(angle), mx.cos(angle)], axis=-1)  # (T, D/2, 2)
    return P.reshape(T, D)  # sine and cosine of a pair side by side


def rotary(x, theta=10000.0):  # (T, d) -> (T, d)
    """Turns pair k, dimensions k and k + d/2, of the query or key at place i by i·θ_k."""
    T, d = x.shape
    i = mx.arange(T)[:, None]  # (T, 1)
    k = mx.arange(d // 2)  # (d/2)
    angle = i * theta ** (-2 * k / d)  # (T, d/2)
    a, b = x[:, : d // 2], x[:, d // 2 :]
    turned_a = mx.cos(angle) * a - mx.sin(angle) * b
    turned_b = mx.sin(angle) * a + mx.cos(angle) * b
    return mx.concatenate([turned_a, turned_b], axis=-1)
