"""The recurrence of a state space, over many tokens at once or one.

`dt`, `A`, `B`, `C` and `h` are the paper's. Axes of shapes: B batch, T length, E channels, N state a channel, J chunks.
"""

from __future__ import annotations

import mlx.core as mx

from zoo_mamba.spec import CHUNK, SEGMENT


def scan(
    x: mx.array, dt: mx.array, B: mx.array, C: mx.array, A: mx.array, h: mx.array
) -> tuple[mx.array, mx.array]:
    """h_t = 2^(dt_t · A) · h_(t−1) + B_t ⊗ x_t and y_t = C_t · h_t (Gu and Dao, 2023, equation 2).

    x, dt (B, T, E), B, C (B, T, N), A (N, E) < 0, h (B, N, E); gives y (B, T, E) and the last h. The chunks of a text
    run side by side from a state of zero, each with the product of its factors 2^(dt · A); the state that each should
    have started from is then passed from one to the next. Such products only shrink, and nothing is divided by one, so
    that no text is too long.
    """
    outputs = []
    for start in range(0, x.shape[1], SEGMENT):
        segment = slice(start, start + SEGMENT)
        y, h = _segment(x[:, segment], dt[:, segment], B[:, segment], C[:, segment], A, h)
        outputs.append(y)
    return outputs[0] if len(outputs) == 1 else mx.concatenate(outputs, axis=1), h


def _segment(
    x: mx.array, dt: mx.array, B: mx.array, C: mx.array, A: mx.array, state: mx.array
) -> tuple[mx.array, mx.array]:
    batch, length, channels = x.shape
    chunks = -(-length // CHUNK)
    size = -(-length // chunks)
    steps = [_steps(array, chunks, size) for array in (x, dt, B, C)]
    # The first chunk knows what it starts from; a lone one therefore has nothing to be added later.
    h = state[:, None] if chunks == 1 else None  # (B, J, N, E)
    decay, outputs = None, []
    for xt, dtt, Bt, Ct in zip(*steps, strict=True):  # (B, J, 1, E) twice, (B, J, 1, N) twice
        kept = mx.power(2.0, dtt * A)  # (B, J, N, E): on a CPU a third of the time of exp
        new = Bt.swapaxes(2, 3) * xt
        h = new if h is None else kept * h + new
        if chunks > 1:
            decay = kept if decay is None else kept * decay
        outputs.append((Ct, h, decay))
    if chunks == 1:
        y, state = [Ct @ h for Ct, h, _ in outputs], h[:, 0]  # type: ignore[index]  # there is a token
    else:
        begin, state = _beginnings(h, decay, state)
        y = [Ct @ (h + decay * begin) for Ct, h, decay in outputs]
    return mx.concatenate(y, axis=2).reshape(batch, -1, channels)[:, :length], state


def _steps(array: mx.array, chunks: int, size: int) -> list[mx.array]:
    """(B, T, ·) -> for each index in a chunk (B, J, 1, ·). Zeros fill the last chunk: a dt of 0 changes no state."""
    batch, length, width = array.shape
    array = mx.pad(array, [(0, 0), (0, chunks * size - length), (0, 0)])
    return mx.split(array.reshape(batch, chunks, size, width), size, axis=2)


def _beginnings(local: mx.array, decay: mx.array, state: mx.array) -> tuple[mx.array, mx.array]:
    """The state at the start of each chunk, (B, J, N, E), and at the end of the last, (B, N, E).

    `local` is what each chunk ends with from a state of zero, `decay` the product of its factors, (B, J, N, E) each.
    """
    chunks = local.shape[1]
    begin = [state[:, None]]
    for h, factor in zip(mx.split(local, chunks, axis=1), mx.split(decay, chunks, axis=1), strict=True):
        begin.append(factor * begin[-1] + h)
    return mx.concatenate(begin[:-1], axis=1), begin[-1][:, 0]
