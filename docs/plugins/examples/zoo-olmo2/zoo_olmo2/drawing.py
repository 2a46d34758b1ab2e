"""How OLMo 2's layer and norm are drawn. Imports no mlx."""

from zoo.insight.diagram import Residual


def joint_norm(subject):
    """RMSNorm of all heads together."""
    return subject.box("Joint RMSNorm")


def output_norm_layer(subject):
    """Two residual sums, each of a part and the norm behind it."""
    for part in ("mixer", "feedforward"):
        yield Residual((*subject.part(part), *subject.part(f"{part}_norm")))
