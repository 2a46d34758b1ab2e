"""Drawings of LSTM, GRU and their layer. Imports no mlx."""

from zoo.describe.diagram import Note, note


def lstm(subject):
    """Three gates around a cell."""
    gates = [("Input", "input"), ("Forget", "input"), ("Output", "input")]
    return _unit(
        subject, "Long short-term memory", 3, [[("Token", "input"), ("State", "recurrent")], gates, "Cell"]
    )


def gru(subject):
    """Two gates around a state."""
    gates = [("Reset gate", "input"), ("Update gate", "input")]
    return _unit(
        subject, "Gated recurrent unit", 2, [[("Token", "input"), ("State", "recurrent")], gates, "Candidate"]
    )


def _unit(subject, title, gates, rows):
    spec = subject.spec
    notes = [
        note(
            "states", f"{{n}} state{'' if spec.states == 1 else 's'} of {{m}}", n=spec.states, m=subject.dim
        ),
        note("gates", "{n} gates", n=gates),
    ]
    if spec.bias:
        notes.append(Note("biases", "bias"))
    return subject.box(title, *notes, rows=rows)


def stacked_layer(subject):
    """The mixer alone: no residual sum, no norm."""
    return subject.part("mixer")
