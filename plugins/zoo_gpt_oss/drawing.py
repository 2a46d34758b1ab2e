"""Drawings of gpt-oss's attention and experts. Imports no mlx."""

from zoo.describe.diagram import Note, parts


def sink_attention(subject):
    """Attention, with the learned score of a head that holds no value."""
    return parts.attention(subject).with_notes(Note("a sink for each head", "sinks"))


def clipped_experts(subject):
    """SwiGLU with clipped inputs."""
    return subject.box("clipped SwiGLU experts")
