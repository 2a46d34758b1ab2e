"""Drawings of the zoo's own parts: norms, embeddings, attention, feed-forwards, experts, heads. Imports no mlx."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from zoo.describe.diagram.draw import DrawnSpec
from zoo.describe.diagram.labels import activation, counted, note, number, spaced
from zoo.describe.diagram.model import Box, Note, boxes
from zoo.describe.facts.fact import factor
from zoo.describe.facts.structure import scaling_text
from zoo.describe.language import joined, message
from zoo.recipe import Attention
from zoo.recipe.parts import GATED_TITLES

MASKS = {"causal": "Masked", "prefix": "Prefix-masked", "full": "Bidirectional"}


def layer_norm(subject: DrawnSpec) -> Box:
    """LayerNorm."""
    return subject.box("LayerNorm")


def rms_norm(subject: DrawnSpec) -> Box:
    """RMSNorm."""
    return subject.box("RMSNorm")


def joint_rms_norm(subject: DrawnSpec) -> Box:
    """RMSNorm of all heads together."""
    return subject.box("Joint RMSNorm")


def learned_positions(subject: DrawnSpec) -> Box:
    """A table of positions."""
    return subject.box("Learned positions", note("positions", "{n} positions", n=subject.spec.context))


def sinusoidal_positions(subject: DrawnSpec) -> Box:
    """Sines and cosines."""
    return subject.box("Sinusoidal positions")


def embedding(subject: DrawnSpec, more: Sequence[tuple[tuple[str, str], Note]] = ()) -> Box:
    """The table of tokens, what is added to it, and a norm; `more` are other summands, each with a fact of its own."""
    spec = subject.spec
    notes = [
        note("vocab", "vocabulary {n}", n=spec.vocab),
        note("dim", "width {n}", n=spec.dim),
    ]
    if spec.scale != 1.0:
        sign, size = factor(spec.scale)
        word = "divided by" if sign == "/" else "times"
        notes.append(Note(message(f"{word} {{n}}", n=size), "scale"))
    if spec.shared:
        notes.append(Note("the encoder's table", "shared"))
    added: list[Any] = []
    if spec.positions is not None:
        for box in subject.part("positions"):
            added.append((box.title, "positions"))
            notes += box.notes
    for part, fact in more:
        added.append(part)
        notes.append(fact)
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
    notes = [note("theta", "RoPE base {n}", n=rope.theta)]
    if rope.dims is not None:
        notes.append(note("rope_dims", "RoPE of {n} features", n=rope.dims))
    if rope.scaling is not None:
        notes.append(Note(scaling_text(rope.scaling), "scaling"))
    return notes


def heads_notes(spec: Attention, dim: int) -> list[Note]:
    """How many heads there are, how wide, and what is special about their scores and projections."""
    keys, head = spec.kv_heads or spec.heads, spec.head_width(dim)
    notes = [Note(counted(spec.heads, "head"), "heads")]
    if keys != spec.heads:
        notes.append(Note(counted(keys, "key/value head"), "kv_heads"))
    notes.append(note("head_dim", "head width {n}", n=head))
    if spec.scale is not None and abs(spec.scale - head**-0.5) > 1e-9:
        text = "scores unscaled" if spec.scale == 1.0 else times("scores", spec.scale)
        notes.append(Note(text, "scale"))
    if spec.bias or spec.output_bias:
        projections = "all" if spec.bias and spec.output_bias else "Q, K, V" if spec.bias else "output"
        notes.append(Note(f"biases: {projections}", "bias"))
    return notes


def times(what: str, scale: float) -> str:
    """A multiplication or division by a number: "scores / 8"."""
    sign, size = factor(scale)
    return message(f"{what} {sign} {{n}}", n=size)


def heads_word(spec: Attention) -> str:
    """The kind of attention by its numbers of heads and key/value heads."""
    keys = spec.kv_heads or spec.heads
    if spec.heads == 1:
        return "single-head"
    return "multi-head" if keys == spec.heads else "multi-query" if keys == 1 else "grouped-query"


def attention(subject: DrawnSpec) -> Box:
    """Self-attention: its heads, and what happens to queries and keys."""
    spec, scene = subject.spec, subject.scene
    notes = heads_notes(spec, subject.dim) + rope_notes(spec.rope)
    if spec.window is not None:
        notes.append(note("window", "window {n}", n=spec.window))
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
    title = message(f"{mask} {{attention}}", attention=f"{heads_word(spec)} attention")
    return subject.box(title, *notes, rows=rows, role="attention")


def cross_attention(subject: DrawnSpec) -> Box:
    """Attention of the target to the encoder's output."""
    notes = heads_notes(subject.spec, subject.dim)
    rows = [[("Query", "query"), ("Key", "key"), ("Value", "value")]]
    box = subject.box("Cross-attention", *notes, rows=rows, role="cross")
    return dataclasses.replace(box, memory=True)


def mlp(subject: DrawnSpec) -> Box:
    """Up, activation, down."""
    spec = subject.spec
    notes = [note("hidden", "hidden {n}", n=spec.hidden)]
    if spec.bias:
        notes.append(Note("biases", "bias"))
    rows = [("Up", "up"), activation(spec.activation), ("Down", "down")]
    return subject.box("Feed-forward", *notes, rows=rows)


def gated_mlp(subject: DrawnSpec) -> Box:
    """Gate and up, their product, down."""
    spec = subject.spec
    notes = [note("hidden", "hidden {n}", n=spec.hidden)]
    if spec.bias:
        notes.append(Note("biases", "bias"))
    gate = message("Gate, {activation}", activation=activation(spec.activation))
    rows: list[Any] = [[(gate, "gate"), ("Up", "up")], "×", ("Down", "down")]
    title = message("{activation} feed-forward", activation=GATED_TITLES.get(spec.activation, "Gated"))
    return subject.box(title, *notes, rows=rows)


def router(subject: DrawnSpec) -> Box:
    """How experts are chosen."""
    return subject.box("Router: softmax")


def experts(subject: DrawnSpec) -> Box:
    """What one expert is."""
    kind = GATED_TITLES.get(subject.spec.activation, "gated")
    return subject.box(message("{kind} experts", kind=kind))


def moe(subject: DrawnSpec) -> Box:
    """The router, the experts, the shared one, and their weighted sum."""
    spec = subject.spec
    router, experts = spec.router, spec.experts  # their contract has counts, and perhaps a hidden width
    notes = [
        note(
            "experts",
            f"{{n}} expert{'' if experts.count == 1 else 's'}, {{m}} used",
            n=experts.count,
            m=router.top_k,
        ),
        Note(subject.title("experts"), "expert"),
    ]
    if hasattr(experts, "hidden"):
        notes.insert(1, note("hidden", "hidden {n}", n=experts.hidden))
    shown = ["1", "2", "3"][: experts.count] if experts.count <= 3 else ["1", "2", "…", number(experts.count)]
    row: list[Any] = [(word, "experts") for word in shown]
    if spec.shared is not None:
        row.append(("Shared", "shared"))
        hidden = getattr(spec.shared, "hidden", None)
        one = Note("shared expert", "shared")
        notes.append(one if hidden is None else note("shared", "shared expert, hidden {n}", n=hidden))
        if spec.shared_gate:
            notes.append(Note("shared expert gated", "shared_gate"))
    chosen = [note for box in boxes(subject.part("router")) for note in box.notes]
    notes += [note for note in chosen if note.name not in ("experts", "top_k")]  # which stand above
    if getattr(router, "bias", False) or getattr(experts, "bias", False):
        notes.append(Note("biases", "bias"))
    rows: list[Any] = [
        (message(f"{subject.title('router')}, top {{n}}", n=number(router.top_k)), "router"),
        row,
        "Weighted sum",
    ]
    return subject.box("Mixture of experts", *notes, rows=rows)


def head(subject: DrawnSpec) -> Box:
    """Hidden states to logits."""
    spec = subject.spec
    notes = [Note("tied to embedding" if spec.tied else "untied", "tied")]
    if spec.bias:
        notes.append(Note("bias", "bias"))
    if spec.scale != 1.0:
        notes.append(Note(times("states", spec.scale), "scale"))
    return subject.box("Output head", *notes)


def side_by_side(subject: DrawnSpec, title: str, **branches: str) -> Box:
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
        notes.append(Note(message(f"{branches[field]}: {{rest}}", rest=joined(", ", texts)), field))
    return subject.box(title, *notes, role="attention", rows=rows)
