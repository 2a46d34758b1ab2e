"""How Gemma 4's attention is drawn. Imports no mlx."""

from zoo.describe.diagram import Note, Residual, parts
from zoo_gemma.drawing import sandwich


def value_norm_attention(subject):
    """Attention, with what is done to its values."""
    note = "values are keys, normalised" if subject.spec.keys_as_values else "values normalised"
    return parts.attention(subject).with_notes(Note(note, "eps"))


def scaled_sandwich(subject):
    """A sandwich layer, the mixture beside its feed-forward, and the sum of what its own input adds."""
    mixer, feedforward = sandwich(subject)
    yield mixer
    yield (
        feedforward
        if subject.spec.mixture is None
        else Residual((both(subject), *subject.part("feedforward_output_norm")))
    )
    if subject.spec.layer_input is not None:
        fields = ("layer_input", "layer_input_norm")
        yield Residual(tuple(item for field in fields for item in subject.part(field)))


def both(subject):
    """A box of the dense feed-forward and the mixture beside it, each between its norms."""
    branches = dict(mixture="Experts", feedforward="Dense")
    title = "Dense feed-forward and experts"
    notes = parts.side_by_side(subject, title, **branches).notes

    def norms(*fields):
        return [(subject.title(fields[1]), field) for field in fields]

    rows = [
        norms("mixture.experts_norm", "feedforward_norm"),
        [(word, field) for field, word in branches.items()],
    ]
    return subject.box(title, *notes, rows=[*rows, norms("mixture_output_norm", "dense_output_norm"), "+"])
