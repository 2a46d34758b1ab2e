"""The probe of Mamba's mixer. Axes: B batch, T tokens, D width, E channels, N state a channel, R rank of dt."""

from __future__ import annotations

import mlx.core as mx

from zoo.inspect.tracing.probe import Probe, Traces, Value


class SelectiveStateSpaceProbe(Probe):
    """The selection of a state space for each token, the size of its state, and its gate."""

    traces = Traces(
        Value("B T D", "what the mixer adds to the residual stream"),
        {
            "convolved": Value("B T E", "the convolution after its activation: what enters the state space"),
            "dt": Value("B T E", "how far the token moves each channel's state", item_axis="E"),
            "B": Value("B T N", "how the token is written into the state", item_axis="N"),
            "C": Value("B T N", "how the state is read at the token", item_axis="N"),
            "state_norm": Value("B T", "the L2 norm of the state after the token", derived="dt"),
            "scanned": Value("B T E", "what is read from the state, and D times what entered", item_axis="E"),
            "gate": Value("B T E", "what each channel of that is multiplied by", item_axis="E"),
        },
        parts={
            "input": Value("B T 2·E", "what enters the convolution, and the gate before its activation"),
            "convolution": Value("B T E", "the convolution over the last tokens, before its activation"),
            "x_proj": Value("B T R+2·N", "dt's low-rank form, B and C side by side"),
            "dt_proj": Value("B T E", "dt before its softplus"),
            "output": None,
        },
    )

    def convolve(
        self, x: mx.array, before: mx.array | None, mask: mx.array | None
    ) -> tuple[mx.array, mx.array]:
        """Note what enters the state space."""
        x, before = super().convolve(x, before, mask)  # type: ignore[misc]
        return self.note("convolved", x), before

    def select(self, x: mx.array) -> tuple[mx.array, ...]:
        """Note dt, B and C."""
        pairs = zip(("dt", "B", "C"), super().select(x), strict=True)  # type: ignore[misc]
        return tuple(self.note(name, value) for name, value in pairs)

    def scan(
        self, x: mx.array, dt: mx.array, B: mx.array, C: mx.array, h: mx.array
    ) -> tuple[mx.array, mx.array]:
        """Note the state's norm after each token, by the recurrence itself, and what is read from the state."""
        A, state, norms = self.decay(), h, []  # type: ignore[attr-defined]
        for t in range(x.shape[1]):
            new = B[:, t, :, None] * (dt * x)[:, t, None]  # (B, N, E)
            state = mx.power(2.0, dt[:, t, None] * A) * state + new
            norms.append(mx.sqrt(mx.square(state).sum(axis=(1, 2))))
        self.note("state_norm", mx.stack(norms, axis=1))
        y, h = super().scan(x, dt, B, C, h)  # type: ignore[misc]
        return self.note("scanned", y), h

    def activate_gate(self, gate: mx.array) -> mx.array:
        """Note the gate."""
        return self.note("gate", super().activate_gate(gate))  # type: ignore[misc]
