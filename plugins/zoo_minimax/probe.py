"""The probe of lightning attention. Axes: B batch, T tokens, D width, H heads, K width of a head."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from zoo.inspect.tracing.probe import Probe, Traces, Value


class LightningAttentionProbe(Probe):
    """Notes the output of each head's state and the output gate."""

    traces = Traces(
        Value("B T D", "what the mixer adds to the residual stream"),
        {
            "scanned": Value("B H T K", "the output of each head's state", item="head", item_axis="H"),
            "gate": Value("B T H·K", "the output gate: a factor for each channel"),
        },
        parts={
            "query": Value("B T H·K", "the queries of all heads side by side"),
            "key": Value("B T H·K", "the keys of all heads side by side"),
            "value": Value("B T H·K", "the values of all heads side by side"),
            "gate": None,
            "output": None,
        },
    )

    def scan(self, *arrays: Any) -> tuple[mx.array, mx.array]:
        """Note the output of each head's state."""
        y, state = super().scan(*arrays)  # type: ignore[misc]
        return self.note("scanned", y), state

    def activate_gate(self, gate: mx.array) -> mx.array:
        """Note the gate."""
        return self.note("gate", super().activate_gate(gate))  # type: ignore[misc]
