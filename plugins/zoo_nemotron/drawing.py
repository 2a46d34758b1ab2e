"""How Nemotron's norm is drawn. Imports no mlx."""


def offset_norm(subject):
    """LayerNorm, whose weight is a distance from one."""
    return subject.box("LayerNorm (1 + w)")
