"""The probe of T5's relative positions. Axes: H heads, T new tokens, S cached and new."""

from __future__ import annotations

from zoo.inspect.tracing.probe import Probe, Traces, Value


class RelativeBiasProbe(Probe):
    """The bias of the scores of every layer."""

    traces = Traces(
        Value("B H T S", "what the distance of two tokens adds to each head's score", "logit", item_axis="H")
    )
