"""How Gemma 4's attention is drawn. Imports no mlx."""

from zoo.describe.diagram import Note, Residual, parts
from zoo_gemma.drawing import sandwich


def value_norm_attention(subject):
    """Attention, with what is done to its values."""
    note = "values are keys, normalised" if subject.spec.keys_as_values else "values normalised"
    return parts.attention(subject).with_notes(Note(note, "eps"))


def scaled_sandwich(subject):
    """A sandwich layer, and the sum of what its own input adds."""
    yield from sandwich(subject)
    if subject.spec.layer_input is not None:
        fields = ("layer_input", "layer_input_norm")
        yield Residual(tuple(item for field in fields for item in subject.part(field)))
