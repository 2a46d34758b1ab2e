"""The probe of a classifier's head. Axes: B batch, T tokens, D width, V labels."""

from zoo.inspect.tracing.probe import Probe, Traces, Value


class ClassifierHeadProbe(Probe):
    """The head's logits, and what its dense layer makes of the hidden states."""

    traces = Traces(
        Value("B T V", "the logits", "logit"),
        parts={
            "output": None,
            "dense": Value("B T D", "the dense layer, before activation and norm"),
        },
    )
