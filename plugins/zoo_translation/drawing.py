"""How attention with a relative bias of its own is drawn. Imports no mlx."""

from zoo.describe.diagram import Note, parts


def relative_attention(subject):
    """Attention, with its bias."""
    return parts.attention(subject).with_notes(Note("relative position bias", "relative"))
