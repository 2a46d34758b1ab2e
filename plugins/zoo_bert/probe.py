"""Probes of BERT's embedding and head. Axes: B batch, T tokens, D width, V vocabulary."""

from __future__ import annotations

import mlx.core as mx

from zoo.inspect.tracing.probe import Probe, Traces, Value


class TypedEmbeddingProbe(Probe):
    """BERT's embedding: the rows of the table, and what types and positions add."""

    traces = Traces(
        Value("B T D", "the vectors that enter the first layer: the sum of the three, normalised"),
        {"vectors": Value("B T D", "the rows of the table")},
        parts={
            "tokens": None,
            # One row for all tokens where nobody says of which sentence each is.
            "types": Value("B 1 D", "the vector of the token type: that of the first sentence"),
        },
    )

    def look_up(self, tokens: mx.array) -> mx.array:
        """Note the rows."""
        return self.note("vectors", super().look_up(tokens))  # type: ignore[misc]


class MaskedHeadProbe(Probe):
    """BERT's head: what its dense layer makes of the hidden states, too."""

    traces = Traces(
        Value("B T V", "the logits", "logit"),
        parts={
            "output": None,
            "dense": Value("B T D", "the dense layer, before activation and norm"),
        },
    )
