"""Recurrences, token by token. Axes: T tokens, D width, E channels, N numbers of state for each channel."""

import mlx.core as mx


def lstm_step(x, h, c, W, U, b):  # (D), (D), (D) -> (D), (D)
    """The cell and what it shows after one more token. W, U and b hold the four gates in turn."""
    i, f, g, o = mx.split(x @ W + h @ U + b, 4)
    i, f, o = mx.sigmoid(i), mx.sigmoid(f), mx.sigmoid(o)
    c = f * c + i * mx.tanh(g)  # how much is kept, how much enters
    h = o * mx.tanh(c)  # how much is shown
    return h, c


def state_space(x, Delta, A, B, C, D):  # (T, E), (T, E), (N, E), (T, N), (T, N), (E) -> (T, E)
    """Mamba's recurrence: linear in the state h, with Δ, B and C computed from each token."""
    h, y = mx.zeros(A.shape), []  # (N, E)
    for t in range(len(x)):
        kept = mx.exp(Delta[t] * A)  # (N, E), between zero and one since A is negative
        h = kept * h + B[t][:, None] * (Delta[t] * x[t])
        y.append(C[t] @ h + D * x[t])  # (E)
    return mx.stack(y)
