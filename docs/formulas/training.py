"""The losses of the tour. Axes: T tokens, V vocabulary."""

import mlx.core as mx


def teacher_forced_loss(model, x):  # (T) -> ()
    """The mean of −ln p of every next token, each predicted from the true tokens before it."""
    inputs, targets = x[:-1], x[1:]  # the same text, shifted by one
    z = model(inputs)  # (T − 1, V), all positions in one pass
    log_p = z - mx.logsumexp(z, axis=-1, keepdims=True)
    t = mx.arange(len(targets))
    return -log_p[t, targets].mean()


def masked_loss(model, x, M, mask):  # (T), (|M|) -> ()
    """The mean of −ln p of the tokens at the masked positions M."""
    hidden = mx.array(x)
    hidden[M] = mask  # the text that the model reads
    z = model(hidden)  # (T, V)
    log_p = z - mx.logsumexp(z, axis=-1, keepdims=True)
    return -log_p[M, x[M]].mean()
