"""Drawings of MiniMax-01's blocks. Imports no mlx."""

from zoo.describe.diagram import Note, Residual, note
from zoo.describe.diagram.draw import activation, counted


def lightning_attention(subject):
    """Projections, the state, the norm and the gate."""
    spec, name = subject.spec, activation(subject.spec.activation)
    rows = [
        [("Query", "query"), ("Key", "key"), ("Value", "value"), ("Gate", "gate")],
        [name, ""],
        "Scan",
        ("RMSNorm", "norm"),
        "×",
        ("Output", "output"),
    ]
    notes = [
        Note(counted(spec.heads, "head"), "heads"),
        note("state", "state {n} × {m} a head", n=spec.head_dim, m=spec.head_dim),
    ]
    return subject.box("Lightning attention", *notes, rows=rows)


def normed_stream(subject):
    """Each norm below the residual sum of its part, with the factors of the sum."""
    for part in ("mixer", "feedforward"):
        yield from subject.part(f"{part}_norm")
        *rest, box = subject.part(part)
        factors = {word: getattr(subject.spec, f"{part}_{word}") for word in ("alpha", "beta")}
        if factors["alpha"] != 1.0:
            box = box.with_notes(note(f"{part}_alpha", "stream × {n}", n=factors["alpha"]))
        if factors["beta"] != 1.0:
            box = box.with_notes(note(f"{part}_beta", "output × {n}", n=factors["beta"]))
        yield Residual((*rest, box))
