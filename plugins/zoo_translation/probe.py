"""How T5's relative positions are traced. Axes: H heads, T new tokens, S cached and new."""

from __future__ import annotations

from zoo.inspect.tracing.probe import Probe, Traces, Value


class RelativeBiasProbe(Probe):
    """What is added to the scores of every layer."""

    traces = Traces(
        Value("B H T S", "what the distance of two tokens adds to each head's score", "logit", item_axis="H")
    )
