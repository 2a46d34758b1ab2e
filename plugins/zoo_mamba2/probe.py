"""The probe of Mamba-2's mixer. Axes: B batch, T tokens, D width, H heads, P width of a head, N state, G groups, E channels."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from zoo.inspect.tracing.probe import Probe, Traces, Value


class StateSpaceProbe(Probe):
    """The selection of a state space for each token, the size of each head's state, and its gate."""

    traces = Traces(
        Value("B T D", "what the mixer adds to the residual stream"),
        {
            "convolved": Value("B T E", "the convolution after its activation: x, B and C side by side"),
            "dt": Value("B T H", "how far the token moves each head's state", item="head", item_axis="H"),
            "B": Value(
                "B G T N", "how the token is written into the states of a group", item="group", item_axis="G"
            ),
            "C": Value(
                "B G T N", "how the states of a group are read at the token", item="group", item_axis="G"
            ),
            "state_norm": Value("B H T", "the L2 norm of each head's state after the token", derived="dt"),
            "scanned": Value("B H T P", "what is read from each head's state, and D times what entered"),
            "gate": Value("B T H·P", "what each channel of that is multiplied by"),
        },
        parts={
            "input": Value(
                "B T E+H+H·P", "the gate, what enters the convolution, and dt before its softplus"
            ),
            "convolution": Value("B T E", "the convolution over the last tokens, before its activation"),
            "output": None,
        },
    )

    def convolve(self, x: mx.array, *more: Any) -> tuple[mx.array, mx.array]:
        """Note what enters the state space."""
        x, before = super().convolve(x, *more)  # type: ignore[misc]
        return self.note("convolved", x), before

    def select(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        """Note B and C."""
        x, B, C = super().select(x)  # type: ignore[misc]
        return x, self.note("B", B), self.note("C", C)

    def scan(
        self, x: mx.array, dt: mx.array, B: mx.array, C: mx.array, state: Any
    ) -> tuple[mx.array, mx.array]:
        """Note dt, each state's norm after each token by the recurrence itself, and what is read from the states."""
        dt = self.note("dt", dt)
        steps, rate, write, _ = self.shared(dt, B, C)  # type: ignore[attr-defined]
        h, norms = mx.zeros((*x.shape[:2], x.shape[3], B.shape[3])) if state is None else state, []
        for t in range(x.shape[2]):
            new = (steps[:, :, t, None] * x[:, :, t])[..., None] * write[:, :, t, None]  # (B, H, P, N)
            h = mx.exp(rate[:, :, t])[..., None, None] * h + new
            norms.append(mx.sqrt(mx.square(h).sum(axis=(2, 3))))
        self.note("state_norm", mx.stack(norms, axis=2))
        y, state = super().scan(x, dt, B, C, state)  # type: ignore[misc]
        return self.note("scanned", y), state

    def activate_gate(self, gate: mx.array) -> mx.array:
        """Note the gate."""
        return self.note("gate", super().activate_gate(gate))  # type: ignore[misc]
