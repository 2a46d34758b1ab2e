"""How the attention of Hunyuan's dense models is drawn. Imports no mlx."""

from zoo.describe.diagram import Note, parts


def late_norm_attention(subject):
    """Attention, with where its norms are."""
    return parts.attention(subject).with_notes(Note("norms after rotation", "query_norm"))
