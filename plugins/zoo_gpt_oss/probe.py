"""The probe of attention with sinks. Axes: B batch, H heads, T new tokens, S cached and new."""

from __future__ import annotations

import mlx.core as mx

from zoo.inspect.tracing.block_probes import AttentionProbe
from zoo.inspect.tracing.probe import Traces, Value


class SinkAttentionProbe(AttentionProbe):
    """Attention, and the share of the sink, which is what the tokens' shares leave of 1."""

    traces = Traces(
        AttentionProbe.traces.output,
        {
            **AttentionProbe.traces.values,
            "sink": Value(
                "B H T", "the sink's share, which takes no value", "probability", derived="pattern"
            ),
        },
        parts=AttentionProbe.traces.parts,
    )

    def note_pattern(self, pattern: mx.array) -> mx.array:  # (B, H, T, S)
        """Note the pattern and the sink's share."""
        pattern = super().note_pattern(pattern)
        self.note("sink", 1 - pattern.sum(axis=-1))
        return pattern
