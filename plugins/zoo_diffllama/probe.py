"""The probe of differential attention. Axes: B batch, T queries, S keys, H heads, G key/value heads, K width of a head."""

from __future__ import annotations

import mlx.core as mx

from zoo.blocks.mask import Mask
from zoo.inspect.tracing.block_probes import ADDED, KEYS, QUERIES, VALUES, AttentionProbe
from zoo.inspect.tracing.probe import Probe, Traces, Value


class DifferentialProbe(Probe):
    """Queries, keys, values, and the differences of what pairs of heads take from the values."""

    traces = Traces(
        Value("B T D", ADDED),
        {
            "queries": QUERIES,
            "keys": KEYS,
            "values": VALUES,
            "heads": Value(
                "B H T K", "what pairs of heads give, normalised, halves side by side", item_axis="H"
            ),
        },
        parts=AttentionProbe.traces.parts,
    )

    def mix(self, queries: mx.array, keys: mx.array, values: mx.array, mask: Mask) -> mx.array:
        """Note the operands and the result."""
        operands = self.note("queries", queries), self.note("keys", keys), self.note("values", values)
        return self.note("heads", super().mix(*operands, mask))  # type: ignore[misc]
