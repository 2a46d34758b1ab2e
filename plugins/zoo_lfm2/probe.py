"""The probe of LFM2's short convolution. Axes: B batch, T tokens, D width, E channels."""

from __future__ import annotations

import mlx.core as mx

from zoo.inspect.tracing.probe import Probe, Traces, Value


class ShortConvolutionProbe(Probe):
    """The gates of a short convolution, and what it makes of the last tokens."""

    traces = Traces(
        Value("B T D", "what the mixer adds to the residual stream"),
        {
            "B": Value("B T E", "what each channel is multiplied by before the convolution", item_axis="E"),
            "C": Value("B T E", "what each channel is multiplied by after the convolution", item_axis="E"),
            "h": Value("B T E", "what enters the convolution, before its gate", item_axis="E"),
            "convolved": Value("B T E", "the convolution over the last tokens", item_axis="E"),
        },
        parts={"input": Value("B T 3·E", "B, C and h side by side"), "convolution": None, "output": None},
    )

    def project(self, x: mx.array) -> tuple[mx.array, ...]:
        """Note both gates and what enters."""
        pairs = zip(("B", "C", "h"), super().project(x), strict=True)  # type: ignore[misc]
        return tuple(self.note(name, value) for name, value in pairs)

    def convolve(
        self, x: mx.array, before: mx.array | None, mask: mx.array | None
    ) -> tuple[mx.array, mx.array]:
        """Note what the convolution makes."""
        mixed, before = super().convolve(x, before, mask)  # type: ignore[misc]
        return self.note("convolved", mixed), before
