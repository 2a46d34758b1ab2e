"""How Gemma 4's attention is drawn. Imports no mlx."""

from zoo.describe.diagram import Note, parts


def value_norm_attention(subject):
    """Attention, with what is done to its values."""
    note = "values are keys, normalised" if subject.spec.keys_as_values else "values normalised"
    return parts.attention(subject).with_notes(Note(note, "eps"))
