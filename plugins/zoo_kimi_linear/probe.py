"""The probe of Kimi Delta Attention. Axes: B batch, T tokens, H heads, K width of a key, V width of a value."""

from zoo.inspect.tracing.probe import Value
from zoo_qwen3_next.probe import GatedDeltaNetProbe

OF_DELTA = GatedDeltaNetProbe.traces


class KimiDeltaNetProbe(GatedDeltaNetProbe):
    """The same, with rates for each number of a key, and the short vectors that these and the gate are made of."""

    traces = OF_DELTA._replace(
        values={**OF_DELTA.values, "rate": Value("B T H·K", "log α: how the token fades each head's state")},
        parts={
            **OF_DELTA.parts,
            "alpha_down": Value("B T V", "the short vector that α is made of"),
            "alpha": Value("B T H·K", "what α is made of"),
            "z_down": Value("B T V", "the short vector that the gate is made of"),
        },
    )
