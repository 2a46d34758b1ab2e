"""How attention with linear biases is drawn. Imports no mlx."""

from zoo.describe.diagram import Note, parts


def alibi_attention(subject):
    """Attention, with its biases."""
    return parts.attention(subject).with_notes(Note("linear biases", "first"))
