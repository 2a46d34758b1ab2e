"""How differential attention is drawn. Imports no mlx."""

from zoo.describe.diagram import Note, parts


def differential_attention(subject):
    """Attention, with what is done to pairs of heads."""
    return parts.attention(subject).with_notes(Note("difference of two maps", "lambda"))
