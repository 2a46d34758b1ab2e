"""Drawings of Mamba's mixer and layer. Imports no mlx."""

from zoo.describe.diagram import Note, Residual, note
from zoo.describe.diagram.draw import activation


def state_space(subject):
    """The convolved branch with its scan, and the gate."""
    spec = subject.spec
    notes = [
        note("hidden", "{n} channels", n=spec.hidden),
        note("state", "state {n} a channel", n=spec.state),
        note("kernel", "kernel {n}", n=spec.kernel),
        note("dt_rank", "rank of Δ {n}", n=spec.dt_rank),
    ]
    if spec.bias:
        notes.append(Note("biases", "bias"))
    rows = [
        ("Input", "input"),
        [("Convolution", "convolution"), ("Gate, SiLU", "input")],
        [(activation(spec.activation), "convolution"), ""],
        [("Δ, B, C", "x_proj"), ""],
        [("Scan", "A_log"), ""],
        "×",
        ("Output", "output"),
    ]
    return subject.box("Selective state space", *notes, rows=rows)


def mixer_layer(subject):
    """One residual sum: there is no feed-forward."""
    return Residual((*subject.part("mixer_norm"), *subject.part("mixer")))
