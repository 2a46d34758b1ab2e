"""How a model that mlx-lm runs is drawn: its layers are closed boxes. Imports no mlx."""

from zoo.describe.diagram import Box, Frame, Note, Stack
from zoo.describe.diagram.labels import number


def bridged(subject):
    """Embedding, as many layers as there are, head; what is in a layer only mlx-lm's code says."""
    spec = subject.spec
    layer = Box("layer", "Layer run by mlx-lm", "layers.*", (Note(f"module {spec.module}", "module"),))
    embedding = (Note(f"vocabulary {number(spec.vocab)}", "vocab"), Note(f"width {number(spec.dim)}", "dim"))
    context = () if spec.context is None else (Note(f"context {number(spec.context)}", "context"),)
    items = (
        Box("embedding", "Embedding", "", embedding),
        Frame((layer,), spec.depth, "layers.*"),
        Box("head", "Output head", ""),
    )
    return Stack("decoder", "", items, Box("input", "Tokens", "context", context), Box("output", "Logits"))
