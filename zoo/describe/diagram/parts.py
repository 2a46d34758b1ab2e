"""How the zoo's own parts are drawn: norms, embeddings, attention, feed-forwards, experts, heads. Imports no mlx."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from zoo.describe.diagram.draw import Subject
from zoo.describe.diagram.labels import GATED_WORDS, activation, counted, number, spaced
from zoo.describe.diagram.model import Box, Note, boxes
from zoo.describe.facts.fact import factor

MASKS = {"causal": "Masked", "prefix": "Prefix-masked", "full": "Bidirectional"}


def layer_norm(subject: Subject) -> Box:
    """LayerNorm."""
    return subject.box("LayerNorm")


def rms_norm(subject: Subject) -> Box:
    """RMSNorm."""
    return subject.box("RMSNorm")


def joint_rms_norm(subject: Subject) -> Box:
    """RMSNorm of all heads together."""
    return subject.box("Joint RMSNorm")


def learned_positions(subject: Subject) -> Box:
    """A table of positions."""
    return subject.box("Learned positions", Note(f"{number(subject.spec.context)} positions", "positions"))


def sinusoidal_positions(subject: Subject) -> Box:
    """Sines and cosines."""
    return subject.box("Sinusoidal positions")


def embedding(subject: Subject, more: Sequence[tuple[tuple[str, str], Note]] = ()) -> Box:
    """The table of tokens, what is added to it, and a norm; `more` are other summands, each with a fact of its own."""
    spec = subject.spec
    notes = [
        Note(f"vocabulary {number(spec.vocab)}", "vocab"),
        Note(f"width {number(spec.dim)}", "dim"),
    ]
    if spec.scale != 1.0:
        sign, size = factor(spec.scale)
        notes.append(Note(f"{'divided by' if sign == '/' else 'times'} {size}", "scale"))
    if spec.shared:
        notes.append(Note("the encoder's table", "shared"))
    added: list[Any] = []
    if spec.positions is not None:
        for box in subject.part("positions"):
            added.append((box.title, "positions"))
            notes += box.notes
    for part, note in more:
        added.append(part)
        notes.append(note)
    rows: list[Any] = [[("Tokens", "tokens"), *added], "+"] if added else []
    if spec.norm is not None:
        rows.append((subject.title("norm"), "norm"))
    return subject.box("Embedding", *notes, rows=rows)


def rope_notes(rope: Any) -> list[Note]:
    """The base of rotary positions and their scaling."""
    if rope is None:
        return []
    if not hasattr(rope, "theta"):
        return [Note(spaced(rope.name), "rope")]
    notes = [Note(f"RoPE base {number(rope.theta)}", "theta")]
    if rope.dims is not None:
        notes.append(Note(f"RoPE of {number(rope.dims)} features", "rope_dims"))
    if rope.scaling is not None:
        factor = getattr(rope.scaling, "factor", None)
        word = {"llama3": "LLaMA-3", "yarn": "YaRN"}.get(rope.scaling.name, rope.scaling.name)
        notes.append(Note(f"{word} scaling{'' if factor is None else f' ×{number(factor)}'}", "scaling"))
    return notes


def heads_notes(spec: Any, dim: int) -> list[Note]:
    """How many heads there are, how wide, and what is special about their scores and projections."""
    keys, head = spec.kv_heads or spec.heads, spec.head_width(dim)
    notes = [Note(counted(spec.heads, "head"), "heads")]
    if keys != spec.heads:
        notes.append(Note(counted(keys, "key/value head"), "kv_heads"))
    notes.append(Note(f"head width {number(head)}", "head_dim"))
    if spec.scale is not None and abs(spec.scale - head**-0.5) > 1e-9:
        text = "scores unscaled" if spec.scale == 1.0 else " ".join(("scores", *factor(spec.scale)))
        notes.append(Note(text, "scale"))
    if spec.bias or spec.output_bias:
        projections = "all" if spec.bias and spec.output_bias else "Q, K, V" if spec.bias else "output"
        notes.append(Note(f"biases: {projections}", "bias"))
    return notes


def heads_word(spec: Any) -> str:
    """What texts call the attention of so many heads and key heads."""
    keys = spec.kv_heads or spec.heads
    if spec.heads == 1:
        return "single-head"
    return "multi-head" if keys == spec.heads else "multi-query" if keys == 1 else "grouped-query"


def attention(subject: Subject) -> Box:
    """Self-attention: its heads, and what happens to queries and keys."""
    spec, scene = subject.spec, subject.scene
    notes = heads_notes(spec, subject.dim) + rope_notes(spec.rope)
    if spec.window is not None:
        notes.append(Note(f"window {number(spec.window)}", "window"))
    if scene.relative is not None:
        notes.append(Note(f"shared {scene.relative.name.replace('-', ' ')}", "relative"))
    rows: list[Any] = [[("Query", "query"), ("Key", "key"), ("Value", "value")]]
    if spec.query_norm is not None:
        rows.append(
            [(subject.title("query_norm"), "query_norm"), (subject.title("key_norm"), "key_norm"), ""]
        )
    if spec.rope is not None:
        word = "RoPE" if spec.rope.name == "rope" else spaced(spec.rope.name)
        rows.append([(word, "rope"), (word, "rope"), ""])
    mask = MASKS.get(scene.causality, spaced(scene.causality))
    return subject.box(f"{mask} {heads_word(spec)} attention", *notes, rows=rows, role="attention")


def cross_attention(subject: Subject) -> Box:
    """Attention of the target to the encoder's output."""
    notes = heads_notes(subject.spec.attention(), subject.dim)
    rows = [[("Query", "query"), ("Key", "key"), ("Value", "value")]]
    box = subject.box("Cross-attention", *notes, rows=rows, role="cross")
    return dataclasses.replace(box, memory=True)


def mlp(subject: Subject) -> Box:
    """Up, activation, down."""
    spec = subject.spec
    notes = [Note(f"hidden {number(spec.hidden)}", "hidden")]
    if spec.bias:
        notes.append(Note("biases", "bias"))
    rows = [("Up", "up"), activation(spec.activation), ("Down", "down")]
    return subject.box("Feed-forward", *notes, rows=rows)


def gated_mlp(subject: Subject) -> Box:
    """Gate and up, their product, down."""
    spec = subject.spec
    notes = [Note(f"hidden {number(spec.hidden)}", "hidden")]
    if spec.bias:
        notes.append(Note("biases", "bias"))
    gate = f"Gate, {activation(spec.activation)}"
    rows: list[Any] = [[(gate, "gate"), ("Up", "up")], "×", ("Down", "down")]
    return subject.box(f"{GATED_WORDS.get(spec.activation, 'Gated')} feed-forward", *notes, rows=rows)


def router(subject: Subject) -> Box:
    """How experts are chosen."""
    return subject.box("Router: softmax")


def experts(subject: Subject) -> Box:
    """What one expert is."""
    return subject.box(f"{GATED_WORDS.get(subject.spec.activation, 'gated')} experts")


def moe(subject: Subject) -> Box:
    """The router, the experts, the shared one, and their weighted sum."""
    spec = subject.spec
    router, experts = spec.router, spec.experts  # their contract has counts, and perhaps a hidden width
    notes = [
        Note(f"{counted(experts.count, 'expert')}, {number(router.top_k)} used", "experts"),
        Note(subject.title("experts"), "expert"),
    ]
    if hasattr(experts, "hidden"):
        notes.insert(1, Note(f"hidden {number(experts.hidden)}", "hidden"))
    shown = (
        ["1", "2", "…", number(experts.count)]
        if experts.count > 3
        else [str(i + 1) for i in range(experts.count)]
    )
    row: list[Any] = [(word, "experts") for word in shown]
    if spec.shared is not None:
        row.append(("Shared", "shared"))
        hidden = getattr(spec.shared, "hidden", None)
        width = "" if hidden is None else f", hidden {number(hidden)}"
        notes.append(Note(f"shared expert{width}", "shared"))
        if spec.shared_gate:
            notes.append(Note("shared expert gated", "shared_gate"))
    chosen = [note for box in boxes(subject.part("router")) for note in box.notes]
    notes += [note for note in chosen if note.name not in ("experts", "top_k")]  # which stand above
    if getattr(router, "bias", False) or getattr(experts, "bias", False):
        notes.append(Note("biases", "bias"))
    rows: list[Any] = [
        (f"{subject.title('router')}, top {number(router.top_k)}", "router"),
        row,
        "Weighted sum",
    ]
    return subject.box("Mixture of experts", *notes, rows=rows)


def head(subject: Subject) -> Box:
    """Hidden states to logits."""
    spec = subject.spec
    notes = []
    if spec.tied:
        notes.append(Note("tied to embedding", "tied"))
    else:
        notes.append(Note("untied", "tied"))
    if spec.bias:
        notes.append(Note("bias", "bias"))
    if spec.scale != 1.0:
        notes.append(Note(" ".join(("states", *factor(spec.scale))), "scale"))
    return subject.box("Output head", *notes)


def side_by_side(subject: Subject, title: str, **branches: str) -> Box:
    """A box of parts of a layer that read the same and whose outputs are summed: the title of each, by its field.

    Where every branch has a norm of its own, in the field `<field>_norm`, these stand below the branches. The first
    branch's notes are those of the box, each of the others has one note.
    """
    first, *others = branches
    norms = [
        (subject.title(norm) if getattr(subject.spec, norm, None) is not None else "", norm)
        for norm in (f"{field}_norm" for field in branches)
    ]
    rows: list[Any] = [[(word, field) for field, word in branches.items()], "+"]
    if all(name for name, _ in norms):
        rows.insert(0, norms)
    notes = [note for box in boxes(subject.part(first)) for note in box.notes]
    for field in others:
        texts = [note.text for box in boxes(subject.part(field)) for note in box.notes]
        notes.append(Note(f"{branches[field]}: {', '.join(texts)}", field))
    return subject.box(title, *notes, role="attention", rows=rows)
