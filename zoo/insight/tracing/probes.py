"""The probes of the zoo's own blocks.

Axes: B batch, T new tokens, S cached and new, D width, H heads, G key/value heads, K width of a head, F hidden, E experts,
k experts of a token, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from zoo.insight.tracing.probe import Probe, Traces, Value

HEADS = Value("B H T K", "what each head takes from the values of all tokens", item="head", item_axis="H")
PATTERN = Value(
    "B H T S", "the share of each token's value in what a head gives", "probability", item_axis="H"
)
QUERIES = Value("B H T K", "queries, normalised and rotated", item_axis="H")
KEYS = Value("B G S K", "keys, normalised and rotated, the cached ones included")
VALUES = Value("B G S K", "values, the cached ones included")


class AttentionProbe(Probe):
    """Attention: queries, keys, values, the pattern of each head, and what each head gives.

    A head's output is linear in the values: with the rows of the identity matrix in their place it is the attention
    pattern itself, whatever the block does to its scores (caps, biases, sinks, windows).
    """

    traces = Traces(
        Value("B T D", "what attention adds to the residual stream"),
        {"queries": QUERIES, "keys": KEYS, "values": VALUES, "pattern": PATTERN, "heads": HEADS},
    )

    def mix(self, queries: mx.array, keys: mx.array, values: mx.array, mask: Any) -> mx.array:
        """Note the operands, the pattern and the result; a replaced pattern weighs the values in the block's place."""
        queries, keys = self.note("queries", queries), self.note("keys", keys)
        values = self.note("values", values)
        own = super().mix  # type: ignore[misc]
        seen, width = values.shape[2:]
        blocks = -(-seen // width)  # of the identity matrix, each as wide as values are
        identity = mx.split(mx.eye(seen, blocks * width, dtype=values.dtype), blocks, axis=1)
        columns = [own(queries, keys, mx.broadcast_to(block, values.shape), mask) for block in identity]
        pattern = mx.concatenate(columns, axis=-1)[..., :seen]
        wanted = self.note("pattern", pattern)
        if wanted is pattern:
            heads = own(queries, keys, values, mask)
        else:
            heads = wanted @ mx.repeat(values, queries.shape[1] // values.shape[1], axis=1)
        return self.note("heads", heads)


class FeedForwardProbe(Probe):
    """A feed-forward: its hidden activations, which the down projection is called with."""

    traces = Traces(
        Value("B T D", "what the feed-forward adds to the residual stream"),
        {"hidden": Value("B T F", "the hidden activations", item="neuron", item_axis="F")},
        {"down": "hidden"},
    )


class RouterProbe(Probe):
    """A router: the experts chosen for each token, and the weight of each."""

    traces = Traces(
        values={
            "indices": Value("B T k", "the experts chosen for each token", "expert"),
            "weights": Value("B T k", "what each chosen expert's output is multiplied by"),
        }
    )

    def __call__(self, x: mx.array) -> tuple[mx.array, mx.array]:
        """Note both, in the router's own order."""
        indices, weights = super().__call__(x)
        return self.note("indices", indices), self.note("weights", weights)


class LayerProbe(Probe):
    """A layer: the residual stream after it."""

    traces = Traces(Value("B T D", "the residual stream after the layer"))


class NormProbe(Probe):
    """A norm."""

    traces = Traces(Value("", "the normalised vectors"))


class EmbeddingProbe(Probe):
    """An embedding."""

    traces = Traces(Value("B T D", "the vectors that enter the first layer"))


class HeadProbe(Probe):
    """A head."""

    traces = Traces(Value("B T V", "the logits", "logit"))


class RotationProbe(Probe):
    """A rotation of queries and then of keys: attention notes both."""

    traces = Traces(None)
