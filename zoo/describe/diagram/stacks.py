"""Drawings of layers and whole models. Imports no mlx."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from zoo.describe.diagram.draw import DrawnSpec, draw
from zoo.describe.diagram.labels import note, which
from zoo.describe.diagram.model import Box, Frame, LayerStack, Note, Residual
from zoo.describe.diagram.parts import side_by_side
from zoo.describe.language import joined, message

MOST_KINDS = 4  # frames of one stack; layers of more kinds share the last


def summed(subject: DrawnSpec, field: str, norm: str) -> tuple[Any, ...]:
    """A part of a layer with its residual sum, and its norm where the layer's `placement` puts it."""
    part, around = _scaled(subject, subject.part(field)), subject.part(norm)
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
    return (
        *summed(subject, "mixer", "mixer_norm"),
        *summed(subject, "feedforward", "feedforward_norm"),
    )


def cross_layer(subject: DrawnSpec) -> tuple[Any, ...]:
    """A mixer, cross-attention, and a feed-forward."""
    return (
        *summed(subject, "mixer", "mixer_norm"),
        *summed(subject, "cross", "cross_norm"),
        *summed(subject, "feedforward", "feedforward_norm"),
    )


def decoder(subject: DrawnSpec) -> LayerStack:
    """Embedding, layers, final norm, head."""
    return _stack(subject, "decoder", Box("output", "Logits"))


def encoder(subject: DrawnSpec) -> LayerStack:
    """Embedding, bidirectional layers, final norm, and a head if there is one."""
    return _stack(
        subject, "encoder", Box("output", "Hidden states" if subject.spec.head is None else "Logits")
    )


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
        *(_final(item) for item in subject.part("norm")),
        *subject.part("head"),
    )
    notes = () if spec.context is None else (note("context", "context {n}", n=spec.context),)
    return LayerStack(role, "", items, Box("input", "Tokens", subject.below("context"), notes), end)


def _final(item: Any) -> Any:
    return (
        dataclasses.replace(item, title=message("Final {norm}", norm=item.title))
        if isinstance(item, Box)
        else item
    )


def frames(subject: DrawnSpec, layers: Sequence[Any]) -> list[Frame]:
    """Layers as frames: one for all that are built alike, with notes of what changes from layer to layer."""
    drawn: dict[Any, tuple[Any, ...]] = {}
    kinds: dict[tuple[Any, ...], list[int]] = {}
    path = subject.below("layers")
    for index, spec in enumerate(layers):
        if id(spec) not in drawn:
            drawn[id(spec)] = draw(
                DrawnSpec(spec, f"{path}.*", subject.spec.width("layers", subject.dim), subject.scene)
            )
        kinds.setdefault(drawn[id(spec)], []).append(index)
    shapes: dict[tuple[Any, ...], dict[tuple[Any, ...], list[int]]] = {}
    for items, indices in kinds.items():
        shapes.setdefault(_bare(items), {})[items] = indices
    found = []
    for variants in list(shapes.values())[:MOST_KINDS]:
        indices = sorted(index for group in variants.values() for index in group)
        label, block = which(indices, len(layers)), layers[indices[0]].block()
        items = _merged(variants, len(layers))
        found.append(Frame(items, len(indices), f"{path}.*", label, block=block))
    if rest := list(shapes.values())[MOST_KINDS:]:
        count = sum(len(group) for variants in rest for group in variants.values())
        box = Box("layer", "Layers of other kinds", f"{path}.*", (Note(message("{n} kinds", n=len(rest))),))
        found.append(Frame((box,), count, f"{path}.*", "the others"))
    return found


def _bare(items: Sequence[Any]) -> tuple[Any, ...]:
    """Items without their notes. Layers with equal ones are built alike."""
    return tuple(
        dataclasses.replace(item, notes=())
        if isinstance(item, Box)
        else dataclasses.replace(item, items=_bare(item.items))
        for item in items
    )


def _merged(variants: dict[tuple[Any, ...], list[int]], total: int) -> tuple[Any, ...]:
    """Items that differ only in notes as one; a note that not all layers have names its layers."""
    if len(variants) == 1:
        return next(iter(variants))
    merged = []
    for items in zip(*variants, strict=True):
        if not isinstance(items[0], Box):
            inner: dict[tuple[Any, ...], list[int]] = {}
            for item, indices in zip(items, variants.values(), strict=True):
                inner.setdefault(item.items, []).extend(indices)
            merged.append(dataclasses.replace(items[0], items=_merged(inner, total)))
            continue
        merged.append(
            dataclasses.replace(items[0], notes=_merged_notes(items, list(variants.values()), total))
        )
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
