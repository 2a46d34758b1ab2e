"""The drawing of Mamba-2's mixer. Imports no mlx."""

from zoo.describe.diagram import Note, note
from zoo.describe.diagram.draw import activation, counted


def state_space(subject):
    """The convolved branch with its scan, the step of each head, and the gate."""
    spec = subject.spec
    rows = [
        ("Input", "input"),
        [("Convolution", "convolution"), ("Δ", "dt_bias"), ("Gate, SiLU", "input")],
        [(activation(spec.activation), "convolution"), "", ""],
        ("Scan", "A_log"),
        "×",
        *([("RMSNorm", "gain")] if spec.eps is not None else []),
        ("Output", "output"),
    ]
    notes = [
        Note(counted(spec.heads, "head"), "heads"),
        note("head_dim", "head width {n}", n=spec.head_dim),
        note("state", "state {n} a channel", n=spec.state),
        Note(counted(spec.groups, "group"), "groups"),
        note("kernel", "kernel {n}", n=spec.kernel),
    ]
    return subject.box("State space with one decay a head", *notes, rows=rows)
