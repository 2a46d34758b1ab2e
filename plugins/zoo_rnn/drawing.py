"""Drawings of LSTM, GRU and their layer. Imports no mlx."""

from zoo.describe.diagram import Note, note


def lstm(subject):
    """Three gates around a cell."""
    return _unit(subject, "Long short-term memory", ("Input", "Forget", "Output"), "Cell")


def gru(subject):
    """Two gates around a state."""
    return _unit(subject, "Gated recurrent unit", ("Reset gate", "Update gate"), "Candidate")


def _unit(subject, title, gates, last):
    spec = subject.spec
    notes = [
        note(
            "states", f"{{n}} state{'' if spec.states == 1 else 's'} of {{m}}", n=spec.states, m=subject.dim
        ),
        note("gates", "{n} gates", n=len(gates)),
    ]
    if spec.bias:
        notes.append(Note("biases", "bias"))
    rows = [[("Token", "input"), ("State", "recurrent")], [(gate, "input") for gate in gates], last]
    return subject.box(title, *notes, rows=rows)


def stacked_layer(subject):
    """The mixer alone: no residual sum, no norm."""
    return subject.part("mixer")
