"""Drawings of Gemma 2's blocks. Imports no mlx."""

from zoo.describe.diagram import Residual, note, parts


def offset_norm(subject):
    """RMSNorm, whose weight is a distance from one."""
    return subject.box("RMSNorm (1 + w)")


def sandwich(subject):
    """A norm on both sides of the mixer, and of the feed-forward."""
    for part in ("mixer", "feedforward"):
        fields = (f"{part}_norm", part, f"{part}_output_norm")
        yield Residual(tuple(item for field in fields for item in subject.part(field)))


def capped_attention(subject):
    """Attention, with the cap of its scores."""
    return parts.attention(subject).with_notes(note("cap", "scores capped at {n}", n=subject.spec.cap))


def capped_head(subject):
    """The output head, with the cap of its logits."""
    return parts.head(subject).with_notes(note("cap", "logits capped at {n}", n=subject.spec.cap))
