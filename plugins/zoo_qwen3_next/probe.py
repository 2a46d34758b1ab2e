"""The probes of Qwen3-Next's mixers.

Axes: B batch, T tokens, D width, H heads (value heads of the delta rule), G key heads, K width of a key, V width of a value, E
channels that are convolved.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from zoo.inspect.tracing.block_probes import AttentionProbe
from zoo.inspect.tracing.probe import Probe, Traces, Value


class GatedAttentionProbe(AttentionProbe):
    """Attention, and how much of each head its gate lets through."""

    traces = AttentionProbe.traces._replace(
        values={
            **AttentionProbe.traces.values,
            "opened": Value("B T H·K", "how much of each number of each head is let through", "probability"),
        },
        parts={
            **AttentionProbe.traces.parts,
            "gate": Value("B T H·K", "the gate of each number of each head, before the sigmoid", "logit"),
        },
    )

    def activate_gate(self, x: mx.array) -> mx.array:
        """Note the gate."""
        return self.note("opened", super().activate_gate(x))  # type: ignore[misc]


class GatedDeltaNetProbe(Probe):
    """What a token keeps, reads and writes in the state of each head, and the gate."""

    traces = Traces(
        Value("B T D", "what the mixer adds to the residual stream"),
        {
            "convolved": Value("B T E", "queries, keys and values side by side, after the convolution"),
            "rate": Value(
                "B T H", "log α: how the token fades each head's state", item="head", item_axis="H"
            ),
            "write": Value(
                "B T H", "β: how much of the difference the token writes", "probability", item_axis="H"
            ),
            "state_norm": Value("B H T", "the L2 norm of each head's state after the token", derived="write"),
            "scanned": Value("B H T V", "what the token's query reads from each head's state", item_axis="H"),
            "opened": Value("B T H·V", "what each number of that, normalised, is multiplied by"),
        },
        parts={
            "q": Value("B T G·K", "the queries of all key heads, before the convolution"),
            "k": Value("B T G·K", "the keys of all key heads, before the convolution"),
            "v": Value("B T H·V", "the values of all heads, before the convolution"),
            "z": Value("B T H·V", "the gate, before its activation"),
            "alpha": Value("B T H", "what α is made of"),
            "beta": Value("B T H", "β before its sigmoid", "logit"),
            "convolution": Value("B T E", "the convolution over the last tokens, before its activation"),
            "output": None,
        },
    )

    def convolve(self, x: mx.array, *more: Any) -> tuple[mx.array, mx.array]:
        """Note queries, keys and values."""
        x, before = super().convolve(x, *more)  # type: ignore[misc]
        return self.note("convolved", x), before

    def select(self, x: mx.array) -> tuple[mx.array, mx.array]:
        """Note log α and β."""
        rate, beta = super().select(x)  # type: ignore[misc]
        return self.note("rate", rate), self.note("write", beta)

    def scan(self, *arrays: Any) -> tuple[mx.array, mx.array]:
        """Note each state's norm after each token, and what is read."""
        *tokens, state = arrays
        norms = []
        for t in range(tokens[0].shape[2]):  # a token at a time
            _, state = super().scan(*(array[:, :, t : t + 1] for array in tokens), state)  # type: ignore[misc]
            norms.append(mx.sqrt(mx.square(state).sum(axis=(2, 3))))
        self.note("state_norm", mx.stack(norms, axis=2))
        y, state = super().scan(*arrays)  # type: ignore[misc]
        return self.note("scanned", y), state

    def activate_gate(self, gate: mx.array) -> mx.array:
        """Note the gate."""
        return self.note("opened", super().activate_gate(gate))  # type: ignore[misc]
