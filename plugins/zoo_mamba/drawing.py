"""How Mamba's mixer and layer are drawn. Imports no mlx."""

from zoo.describe.diagram import Note, Residual
from zoo.describe.diagram.labels import activation, number


def state_space(subject):
    """The convolved branch with its scan, and the gate."""
    spec = subject.spec
    notes = [
        Note(f"{number(spec.hidden)} channels", "hidden"),
        Note(f"state {number(spec.state)} a channel", "state"),
        Note(f"kernel {number(spec.kernel)}", "kernel"),
        Note(f"rank of Δ {number(spec.dt_rank)}", "dt_rank"),
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
