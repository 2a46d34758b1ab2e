"""Drawings of latent attention and the routers. Imports no mlx."""

from zoo.describe.diagram import Note, note, parts
from zoo.describe.diagram.draw import counted
from zoo.describe.language import message


def latent_attention(subject):
    """The cached latents, the heads made of them, and their positions."""
    spec = subject.spec
    notes = [
        Note(counted(spec.heads, "head"), "heads"),
        note("head_dim", "head width {n} + {m}", n=spec.nope_dim, m=spec.rope_dim),
        note("value_dim", "value width {n}", n=spec.value_dim),
        note("kv_rank", "key/value latent {n}", n=spec.kv_rank),
        note("cached", "cached {n} + {m}", n=spec.kv_rank, m=spec.kv_widths(1)[1]),
        *(parts.rope_notes(spec.rope) if spec.rope else []),
    ]
    latent = [("K/V latent", "kv_norm"), ("RoPE key", "rope") if spec.rope else ("Shared key", "rope_dim")]
    heads = [("Query", "query"), ("Key", "key"), ("Value", "value")]
    if spec.query_rank is not None:
        notes.insert(3, note("query_rank", "query latent {n}", n=spec.query_rank))
        latent.insert(0, ("Q latent", "query_norm"))
    if spec.query_scale is not None:
        notes.append(Note(spec.query_scale.title, "query_scale"))
    if spec.bias:
        notes.append(Note("biases", "bias"))
    if spec.indexer is not None:
        best = dict(n=spec.indexer.top_k, m=spec.indexer.heads)
        notes.append(note("indexer", "best {n} tokens by {m} heads", **best))
    mask = parts.MASKS[subject.scene.causality]
    return subject.box(
        message(f"{mask} {{attention}}", attention="multi-head latent attention"),
        *notes,
        rows=[latent, heads],
    )


def sigmoid_router(subject):
    """The router, which scores by a sigmoid."""
    return subject.box("Router: sigmoid")


def group_router(subject):
    """The same, and the groups that it chooses from."""
    spec = subject.spec
    return subject.box(
        "Router: sigmoid", note("groups", "{n} of {m} groups", n=spec.top_k_groups, m=spec.groups)
    )
