"""The recurrence of a state space, over many tokens at once or one.

Axes: B batch, T length, E channels, N numbers of state a channel, C chunks, L tokens of a chunk.
"""

import mlx.core as mx

from zoo_mamba.spec import CHUNK, SEGMENT


def scan(x, rate, write, read, decay, state):
    """h_t = 2^(rate_t · decay) · h_(t−1) + write_t ⊗ x_t and y_t = read_t · h_t (Gu and Dao, 2023, equation 2).

    x, rate (B, T, E), write, read (B, T, N), decay (N, E) < 0, state (B, N, E); gives y (B, T, E) and the last
    state. The chunks of a text run side by side from a state of zero, each with the product of its decays; what
    each should have started from is then passed from one to the next. Products of decays only shrink, and
    nothing is divided by one, so that no text is too long.
    """
    outputs = []
    for start in range(0, x.shape[1], SEGMENT):
        piece = [array[:, start : start + SEGMENT] for array in (x, rate, write, read)]
        y, state = _segment(*piece, decay, state)
        outputs.append(y)
    return outputs[0] if len(outputs) == 1 else mx.concatenate(outputs, axis=1), state


def _segment(x, rate, write, read, decay, state):
    batch, length, channels = x.shape
    chunks = -(-length // CHUNK)
    size = -(-length // chunks)
    steps = [_steps(array, chunks, size) for array in (x, rate, write, read)]
    # The first chunk knows what it starts from; a lone one therefore has nothing to be added later.
    h = state[:, None] if chunks == 1 else None  # (B, C, N, E)
    total, outputs = None, []
    for xt, rt, wt, ct in zip(*steps, strict=True):  # (B, C, 1, E) twice, (B, C, 1, N) twice
        kept = mx.power(2.0, rt * decay)  # (B, C, N, E): on a CPU a third of the time of exp
        new = wt.swapaxes(2, 3) * xt
        h = new if h is None else kept * h + new
        if chunks > 1:
            total = kept if total is None else kept * total
        outputs.append((ct, h, total))
    if chunks == 1:
        y, state = [ct @ h for ct, h, _ in outputs], h[:, 0]
    else:
        begin, state = _beginnings(h, total, state)
        y = [ct @ (h + total * begin) for ct, h, total in outputs]
    return mx.concatenate(y, axis=2).reshape(batch, -1, channels)[:, :length], state


def _steps(array, chunks, size):
    """(B, T, ·) -> for each place in a chunk (B, C, 1, ·). Zeros fill the last chunk: a rate of 0 changes no state."""
    batch, length, width = array.shape
    array = mx.pad(array, [(0, 0), (0, chunks * size - length), (0, 0)])
    return mx.split(array.reshape(batch, chunks, size, width), size, axis=2)


def _beginnings(local, total, state):
    """What each chunk starts from, (B, C, N, E), and what the last one ends with, (B, N, E)."""
    chunks = local.shape[1]
    begin = [state[:, None]]
    for h, decay in zip(mx.split(local, chunks, axis=1), mx.split(total, chunks, axis=1), strict=True):
        begin.append(decay * begin[-1] + h)
    return mx.concatenate(begin[:-1], axis=1), begin[-1][:, 0]
