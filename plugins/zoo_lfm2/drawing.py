"""The drawing of LFM2's short convolution. Imports no mlx."""

from zoo.describe.diagram import Note, note


def short_convolution(subject):
    """Two gates, one before the convolution and one after it."""
    spec = subject.spec
    notes = [note("kernel", "kernel {n}", n=spec.kernel)]
    if spec.bias:
        notes.append(Note("biases", "bias"))
    rows = [
        ("Input", "input"),
        [("h", "input"), ("Gate B", "input"), ("Gate C", "input")],
        ["×", ""],
        [("Convolution", "convolution"), ""],
        "×",
        ("Output", "output"),
    ]
    return subject.box("Gated short convolution", *notes, rows=rows)
