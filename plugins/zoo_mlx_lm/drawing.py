"""The drawing of a model that mlx-lm runs: its layers are closed boxes. Imports no mlx."""

from zoo.describe.diagram import Box, Frame, LayerStack, Note, note


def bridged(subject):
    """Embedding, as many layers as there are, head; what is in a layer only mlx-lm's code says."""
    spec = subject.spec
    layer = Box("layer", "Layer run by mlx-lm", "layers.*", (Note(f"module {spec.module}", "module"),))
    embedding = (note("vocab", "vocabulary {n}", n=spec.vocab), note("dim", "width {n}", n=spec.dim))
    context = () if spec.context is None else (note("context", "context {n}", n=spec.context),)
    items = (
        Box("embedding", "Embedding", "", embedding),
        Frame((layer,), spec.depth, "layers.*"),
        Box("head", "Output head", ""),
    )
    return LayerStack(
        "decoder", "", items, Box("input", "Tokens", "context", context), Box("output", "Logits")
    )
