"""How latent attention and its router are drawn. Imports no mlx."""

from zoo.describe.diagram import Note, parts
from zoo.describe.diagram.labels import counted, number


def latent_attention(subject):
    """What is cached, the heads made of it, and their positions."""
    spec = subject.spec
    notes = [
        Note(counted(spec.heads, "head"), "heads"),
        Note(f"head width {spec.nope_dim} + {spec.rope_dim}", "head_dim"),
        Note(f"value width {spec.value_dim}", "value_dim"),
        Note(f"key/value latent {number(spec.kv_rank)}", "kv_rank"),
        Note(f"cached {spec.kv_rank} + {spec.rope_dim}", "cached"),
        *parts.rope_notes(spec.rope),
    ]
    query = [("Query", "query")]
    latent = [("K/V latent", "kv_norm"), ("RoPE key", "rope")]
    heads = [("Key", "key"), ("Value", "value")]
    if spec.query_rank is not None:
        notes.insert(3, Note(f"query latent {number(spec.query_rank)}", "query_rank"))
        latent.insert(0, ("Q latent", "query_norm"))
    if spec.bias:
        notes.append(Note("biases", "bias"))
    mask = parts.MASKS[subject.scene.causality]
    return subject.box(f"{mask} multi-head latent attention", *notes, rows=[latent, [*query, *heads]])


def group_router(subject):
    """The router, which scores by a sigmoid, and the groups that it chooses from."""
    spec = subject.spec
    groups = [Note(f"{spec.top_k_groups} of {spec.groups} groups", "groups")] if spec.groups > 1 else []
    return subject.box("Router: sigmoid", *groups)
