"""How LSTM, GRU and their layer are drawn. Imports no mlx."""

from zoo.describe.diagram import Note
from zoo.describe.diagram.labels import counted, number


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
        Note(f"{counted(spec.states, 'state')} of {number(subject.dim)}", "states"),
        Note(f"{gates} gates", "gates"),
    ]
    if spec.bias:
        notes.append(Note("biases", "bias"))
    return subject.box(title, *notes, rows=rows)


def stacked_layer(subject):
    """The mixer alone: no residual sum, no norm."""
    return subject.part("mixer")
