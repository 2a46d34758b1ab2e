"""Cross-entropy with teacher forcing. Axes: B batch, T length, V vocabulary."""

import mlx.core as mx

IGNORED = -1  # a target without a loss
SMALLEST = 1e-37  # smaller probabilities are raised to this, about the smallest normal number of float32


def token_losses(logits, targets):  # (B, T, V), (B, T) -> (B, T)
    """−log p(target) in nats, 0 where the target is ignored."""
    # Through the softmax, whose gradient needs no second exp: on the CPU exp is what training waits for.
    probabilities = mx.softmax(logits, axis=-1)
    chosen = mx.take_along_axis(probabilities, mx.maximum(targets, 0)[..., None], axis=-1)[..., 0]  # (B, T)
    return -mx.log(mx.maximum(chosen, SMALLEST)) * (targets != IGNORED)


def cross_entropy(logits, targets):  # (B, T, V), (B, T) -> ()
    """Mean over the targets that are not ignored of −log p(target | the tokens before it), in nats."""
    return token_losses(logits, targets).sum() / mx.maximum((targets != IGNORED).sum(), 1)


def next_token_loss(model, inputs, targets):
    """The loss of a decoder on inputs (B, T) whose targets (B, T) are the next tokens."""
    return cross_entropy(model(inputs), targets)
