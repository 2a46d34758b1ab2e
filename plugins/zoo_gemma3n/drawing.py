"""How Gemma 3n's blocks are drawn. Imports no mlx."""

from zoo.describe.diagram import Residual, note, parts
from zoo_gemma.drawing import sandwich


def altup(subject):
    """AltUp, with its number of residual streams."""
    return subject.box("AltUp", note("inputs", "{n} residual streams", n=subject.spec.inputs))


def laurel(subject):
    """LAuReL, with its rank."""
    return subject.box("LAuReL", note("rank", "rank {n}", n=subject.spec.rank))


def stream_mean(subject):
    """The mean of the streams."""
    return subject.box("Stream mean")


def sparse_gated_mlp(subject):
    """A gated feed-forward, with the share of its gate that is zero."""
    return parts.gated_mlp(subject).with_notes(
        note("sparsity", "share of the gate that is zero: {n}", n=subject.spec.sparsity)
    )


def layer(subject):
    """AltUp and LAuReL, the sums of a sandwich layer, that of its own input, and the mean of the streams."""
    yield from subject.part("altup")
    yield from subject.part("laurel")
    yield from sandwich(subject)
    yield Residual(tuple(item for name in ("layer_input", "layer_input_norm") for item in subject.part(name)))
    if subject.spec.merge is not None:
        yield from subject.part("merge")
