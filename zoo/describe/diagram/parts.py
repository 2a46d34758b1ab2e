"""Drawings of the zoo's own parts, from norms to heads, and of layers and whole models. Imports no mlx."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from zoo.describe.diagram.draw import DrawnSpec, activation, counted, draw, note, number, spaced, which
from zoo.describe.diagram.model import Box, Frame, LayerStack, Note, Residual, boxes, without_notes
from zoo.describe.facts.fact import factor
from zoo.describe.facts.structure import scaling_text
from zoo.describe.language import joined, message
from zoo.recipe import Attention
from zoo.recipe.parts import GATED_TITLES

MOST_KINDS = 4  # frames of one stack; layers of more kinds share the last
MASKS = {"causal": "Masked", "prefix": "Prefix-masked", "full": "Bidirectional"}


def titled(title: str) -> Callable[[DrawnSpec], Box]:
    """The drawing of a part that a title says all of."""
    return lambda subject: subject.box(title)


layer_norm, rms_norm, joint_rms_norm = map(titled, ("LayerNorm", "RMSNorm", "Joint RMSNorm"))
sinusoidal_positions = titled("Sinusoidal positions")
router = titled("Router: softmax")


def learned_positions(subject: DrawnSpec) -> Box:
    """A table of positions."""
    return subject.box("Learned positions", note("positions", "{n} positions", n=subject.spec.context))


def embedding(subject: DrawnSpec, more: Sequence[tuple[tuple[str, str], Note]] = ()) -> Box:
    """The table of tokens, what is added to it, and a norm; `more` are other summands, each with a fact of its own."""
    spec = subject.spec
    notes = [note("vocab", "vocabulary {n}", n=spec.vocab), note("dim", "width {n}", n=spec.dim)]
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
        notes.append(note("window", "chunks of {n}" if spec.chunked else "window {n}", n=spec.window))
    if spec.query_scale is not None:
        notes.append(Note(spec.query_scale.title, "query_scale"))
    if scene.relative is not None:
        notes.append(Note(f"shared {scene.relative.name.replace('-', ' ')}", "relative"))
    rows: list[Any] = [[("Query", "query"), ("Key", "key"), ("Value", "value")]]
    if norms := [name for name in ("query_norm", "key_norm") if getattr(spec, name) is not None]:
        rows.append(
            [
                *(
                    (subject.title(name), name) if name in norms else ""
                    for name in ("query_norm", "key_norm")
                ),
                "",
            ]
        )
    if spec.rope is not None:
        word = "RoPE" if spec.rope.name == "rope" else spaced(spec.rope.name)
        rows.append([(word, "rope"), (word, "rope"), ""])
    mask = MASKS.get(scene.causality, spaced(scene.causality))
    title = message(f"{mask} {{attention}}", attention=f"{heads_word(spec)} attention")
    return subject.box(title, *notes, rows=rows, role="attention")


def shared_attention(subject: DrawnSpec) -> Box:
    """Self-attention to the keys and values of an earlier layer."""
    return attention(subject).with_notes(Note("keys and values of an earlier layer", "source"))


def per_layer_embedding(subject: DrawnSpec) -> Box:
    """The embedding, with the input that it gives each layer."""
    spec = subject.spec
    return embedding(subject).with_notes(
        note("width_per_layer", "{n} numbers for each layer", n=spec.width_per_layer)
    )


def per_layer_input(subject: DrawnSpec) -> Box:
    """Gate, its product with the layer's own input, output."""
    rows = [("Gate", "gate"), activation(subject.spec.activation), "×", ("Output", "output")]
    return subject.box("Per-layer input", rows=rows)


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


def experts(subject: DrawnSpec) -> Box:
    """What one expert is."""
    kind = GATED_TITLES.get(subject.spec.activation, "gated")
    return subject.box(message("{kind} experts", kind=kind))


def moe(subject: DrawnSpec) -> Box:
    """The router, the experts, the shared one, and their weighted sum."""
    spec = subject.spec
    router, experts = spec.router, spec.experts  # their contract has counts, and perhaps a hidden width
    template = "{n} expert, {m} used" if experts.count == 1 else "{n} experts, {m} used"
    notes = [note("experts", template, n=experts.count, m=router.top_k)]
    if hasattr(experts, "hidden"):
        notes.append(note("hidden", "hidden {n}", n=experts.hidden))
    notes.append(Note(subject.title("experts"), "expert"))
    shown = ["1", "2", "3"][: experts.count] if experts.count <= 3 else ["1", "2", "…", number(experts.count)]
    row: list[Any] = [(word, "experts") for word in shown]
    if spec.shared is not None:
        row.append(("Shared", "shared"))
        hidden = getattr(spec.shared, "hidden", None)
        one = Note("shared expert", "shared")
        notes.append(one if hidden is None else note("shared", "shared expert, hidden {n}", n=hidden))
        if spec.shared_gate:
            notes.append(Note("shared expert gated", "shared_gate"))
    if spec.scales_inputs:
        notes.append(Note("weights on inputs", "scales_inputs"))
    chosen = [note for box in boxes(subject.part("router")) for note in box.notes]
    notes += [note for note in chosen if note.name not in ("experts", "top_k")]  # which stand above
    if getattr(router, "bias", False) or getattr(experts, "bias", False):
        notes.append(Note("biases", "bias"))
    chosen_by = message(f"{subject.title('router')}, top {{n}}", n=number(router.top_k))
    rows: list[Any] = [(chosen_by, "router"), row, "Weighted sum"]
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


def summed(subject: DrawnSpec, field: str) -> tuple[Any, ...]:
    """A part of a layer with its residual sum, and its norm where the layer's `placement` puts it."""
    part, around = _scaled(subject, subject.part(field)), subject.part(f"{field}_norm")
    if subject.spec.placement == "post":
        return (Residual(part), *around)
    return (Residual((*around, *part)),)


def _scaled(subject: DrawnSpec, items: tuple[Any, ...]) -> tuple[Any, ...]:
    """A part's items, with a note of the layer's residual scale."""
    scale = subject.spec.residual_scale
    if scale == 1.0 or not isinstance(items[-1], Box):
        return items
    return (*items[:-1], items[-1].with_notes(note("residual_scale", "output × {n}", n=scale)))


def parallel(subject: DrawnSpec) -> Residual:
    """A mixer and a feed-forward side by side, which share one norm or have one each."""
    mixer = "Attention" if subject.spec.mixer.title.endswith("attention") else "Mixer"
    title = f"{mixer} and feed-forward in parallel"
    both = side_by_side(subject, title, mixer=mixer, feedforward="Feed-forward")
    shared = subject.part("mixer_norm") if subject.spec.feedforward_norm is None else ()
    return Residual((*shared, *_scaled(subject, (both,))))


def layer(subject: DrawnSpec) -> tuple[Any, ...]:
    """A mixer and a feed-forward."""
    if subject.spec.parallel:
        return (parallel(subject),)
    return (*summed(subject, "mixer"), *summed(subject, "feedforward"))


def cross_layer(subject: DrawnSpec) -> tuple[Any, ...]:
    """A mixer, cross-attention, and a feed-forward."""
    return (*summed(subject, "mixer"), *summed(subject, "cross"), *summed(subject, "feedforward"))


def decoder(subject: DrawnSpec) -> LayerStack:
    """Draws a decoder: the embedding, the layers, the final norm and the head."""
    return _stack(subject, "decoder", Box("output", "Logits"))


def encoder(subject: DrawnSpec) -> LayerStack:
    """Embedding, bidirectional layers, final norm, and a head if there is one."""
    end = Box("output", "Hidden states" if subject.spec.head is None else "Logits")
    return _stack(subject, "encoder", end)


def encoder_decoder(subject: DrawnSpec) -> tuple[Any, ...]:
    """Both stacks: what leaves the encoder is read by the decoder's cross-attention."""
    (left,), (right,) = subject.part("encoder"), subject.part("decoder")
    start = dataclasses.replace(left.start, title="Source tokens")
    left = dataclasses.replace(left, start=start, title="Encoder", end=Box("memory", "Memory"))
    start = dataclasses.replace(right.start, title="Target tokens")
    return left, dataclasses.replace(right, start=start, title="Decoder")


def _stack(subject: DrawnSpec, role: str, end: Box) -> LayerStack:
    spec = subject.spec
    scene = dataclasses.replace(subject.scene, causality=spec.causality, relative=spec.relative)
    subject = dataclasses.replace(subject, scene=scene)
    items = (
        *subject.part("embedding"),
        *frames(subject, spec.layers),
        *(
            dataclasses.replace(item, title=message("Final {norm}", norm=item.title))
            if isinstance(item, Box)
            else item
            for item in subject.part("norm")
        ),
        *subject.part("head"),
    )
    notes = () if spec.context is None else (note("context", "context {n}", n=spec.context),)
    return LayerStack(role, "", items, Box("input", "Tokens", subject.below("context"), notes), end)


def frames(subject: DrawnSpec, layers: Sequence[Any]) -> list[Frame]:
    """Layers as frames: one for all that are built alike, with notes of what changes from layer to layer."""
    drawn: dict[Any, tuple[Any, ...]] = {}
    kinds: dict[tuple[Any, ...], list[int]] = {}
    path, width = subject.below("layers"), subject.spec.width("layers", subject.dim)
    for index, spec in enumerate(layers):
        if id(spec) not in drawn:
            drawn[id(spec)] = draw(DrawnSpec(spec, f"{path}.*", width, subject.scene))
        kinds.setdefault(drawn[id(spec)], []).append(index)
    shapes: dict[tuple[Any, ...], dict[tuple[Any, ...], list[int]]] = {}
    for items, indices in kinds.items():
        shapes.setdefault(without_notes(items), {})[items] = indices
    stack_frames = []
    for variants in list(shapes.values())[:MOST_KINDS]:
        indices = sorted(index for group in variants.values() for index in group)
        label, block = which(indices, len(layers)), layers[indices[0]].block()
        items = _merged(variants, len(layers))
        stack_frames.append(Frame(items, len(indices), f"{path}.*", label, block=block))
    if rest := list(shapes.values())[MOST_KINDS:]:
        count = sum(len(group) for variants in rest for group in variants.values())
        box = Box("layer", "Layers of other kinds", f"{path}.*", (Note(message("{n} kinds", n=len(rest))),))
        stack_frames.append(Frame((box,), count, f"{path}.*", "the others"))
    return stack_frames


def _merged(variants: dict[tuple[Any, ...], list[int]], total: int) -> tuple[Any, ...]:
    """Items that differ only in notes as one; a note that not all layers have names its layers."""
    if len(variants) == 1:
        return next(iter(variants))
    merged = []
    for items in zip(*variants, strict=True):
        if isinstance(items[0], Box):
            notes = _merged_notes(items, list(variants.values()), total)
            merged.append(dataclasses.replace(items[0], notes=notes))
            continue
        inner: dict[tuple[Any, ...], list[int]] = {}
        for item, indices in zip(items, variants.values(), strict=True):
            inner.setdefault(item.items, []).extend(indices)
        merged.append(dataclasses.replace(items[0], items=_merged(inner, total)))
    return tuple(merged)


def _merged_notes(boxes: Sequence[Box], indices: Sequence[Sequence[int]], total: int) -> tuple[Note, ...]:
    names = dict.fromkeys(note.name for box in boxes for note in box.notes)
    of_layers = sum(map(len, indices))
    notes = []
    for name in names:
        texts: dict[str, list[int]] = {}
        for box, group in zip(boxes, indices, strict=True):
            for one in box.notes:
                if one.name == name:
                    texts.setdefault(one.text, []).extend(group)
        if len(texts) == 1 and sum(map(len, texts.values())) == of_layers:
            notes.append(Note(next(iter(texts)), name))
        elif len(texts) <= 3:
            told = (
                message("{text} in {layers}", text=text, layers=which(sorted(group), total))
                for text, group in texts.items()
            )
            notes.append(Note(joined("; ", told), name))
        else:
            first, *_, last = texts
            notes.append(Note(message("{first} to {last}, by layer", first=first, last=last), name))
    return tuple(notes)
