"""Cross-entropy with teacher forcing. Axes: B batch, T length, P positions, D width, V vocabulary."""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

IGNORED = -1  # a target without a loss
MOST = 0.75  # share of the targets with a loss from which on all logits are computed
SMALLEST = 1e-37  # smaller probabilities are raised to this, about the smallest normal number of float32


def token_losses(logits, targets):  # (B, T, V), (B, T) -> (B, T)
    """−log p(target) in nats, in float32: 0 where the target is ignored."""
    # Through the softmax, whose gradient needs no second exp: on the CPU exp is what training waits for.
    probabilities = mx.softmax(logits.astype(mx.float32), axis=-1)
    chosen = mx.take_along_axis(probabilities, mx.maximum(targets, 0)[..., None], axis=-1)[..., 0]  # (B, T)
    return -mx.log(mx.maximum(chosen, SMALLEST)) * (targets != IGNORED)


def cross_entropy(logits, targets):  # (B, T, V), (B, T) -> ()
    """Mean over the targets that are not ignored of −log p(target | the tokens before it), in nats."""
    return token_losses(logits, targets).sum() / mx.maximum((targets != IGNORED).sum(), 1)


def next_token_loss(model, inputs, targets):
    """The loss of a decoder on inputs (B, T) whose targets (B, T) are the next tokens."""
    return cross_entropy(model(inputs), targets)


def scored_loss(hidden, head, targets):  # (B, T, D), (B, T) -> ()
    """Cross-entropy of hidden states on the targets that are not ignored; `head` computes little more than their logits."""
    scored = np.array(targets) != IGNORED
    if scored.mean() >= MOST:
        return cross_entropy(head(hidden), targets)
    positions = true_positions(scored)
    hidden = hidden.reshape(targets.size, -1)[positions]  # (B, T, D) -> (P, D)
    return cross_entropy(head(hidden[None]), targets.reshape(-1)[positions][None])


def scored_targets(batch: Sequence[mx.array]) -> float:
    """The number of targets of a batch (inputs, targets, …) that have a loss."""
    return float((batch[1] != IGNORED).sum().item())


def true_positions(which):
    """The flat indices of the positions that are true, (B, T) -> (P,); index 0 if none is.

    No position at all would be a product of no rows, which the CPU backend cannot take; that one is ignored, or weighs 0.
    """
    positions = np.flatnonzero(np.array(which))
    return mx.array(positions if positions.size else [0])
