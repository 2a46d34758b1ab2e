"""How Mamba-2's mixer is drawn. Imports no mlx."""

from zoo.describe.diagram import Note
from zoo.describe.diagram.labels import activation, counted, number


def state_space(subject):
    """The convolved branch with its scan, which the gate is multiplied with, and the step of each head."""
    spec = subject.spec
    rows = [
        ("Input", "input"),
        [("Convolution", "convolution"), ("Step", "step"), ("Gate, SiLU", "input")],
        [(activation(spec.activation), "convolution"), "", ""],
        ("Scan", "decay"),
        "×",
        *([("RMSNorm", "gain")] if spec.eps is not None else []),
        ("Output", "output"),
    ]
    notes = [
        Note(counted(spec.heads, "head"), "heads"),
        Note(f"head width {number(spec.head_dim)}", "head_dim"),
        Note(f"state {number(spec.state)} a channel", "state"),
        Note(counted(spec.groups, "group"), "groups"),
        Note(f"kernel {number(spec.kernel)}", "kernel"),
    ]
    return subject.box("State space with one decay a head", *notes, rows=rows)
