"""Sentences about what a stack has once: positions, the kind of norms and layers, embedding and head. Imports no mlx."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from zoo.describe.differences.fields import FIELDS
from zoo.describe.differences.parts import (
    article,
    capital,
    changed_fields,
    explanation,
    lowered,
    replaced,
    value_text,
)
from zoo.describe.facts.fact import factor, factor_words
from zoo.describe.facts.structure import positions
from zoo.recipe import Head, Layer, Spec


def common(parts: Sequence[Spec | None]) -> Spec | None:
    """The form that a part has most often among the layers; None for no layers."""
    return Counter(parts).most_common(1)[0][0] if parts else None


def positions_changed(ours: Any, theirs: Any) -> Iterator[str]:
    """Positions of another kind; rotary ones that differ in numbers are a difference of the mixer."""
    kinds = [_kind_of_positions(stack) for stack in (ours, theirs)]
    old, new = ours.embedding.positions, theirs.embedding.positions
    if kinds[0] == kinds[1]:
        if old is not None and new is not None and type(old) is type(new):
            for name, (_, value) in changed_fields(old, new).items():
                if name == "offset":
                    yield f"Positions begin at {value}."
                elif name != "context":
                    yield POSITION_FIELDS.get((name, value), f"Positions: {name} {value_text(value)}.")
    elif not kinds[1]:
        yield f"No positions, where the other has {kinds[0]} ones: the layers read tokens in their order."
    else:
        beside = f" instead of {kinds[0]}" if kinds[0] else ""
        yield f"Positions: {positions(theirs)}{beside}."


POSITION_FIELDS = {
    ("interleaved", False): "All sines of the positions come before all cosines.",
    ("interleaved", True): "Sines and cosines of the positions stand side by side.",
    ("inclusive", True): "The slowest position turns at exactly 1/theta.",
    ("inclusive", False): "The slowest position turns faster than 1/theta.",
}


def _kind_of_positions(stack: Any) -> str:
    text = positions(stack) or ""
    return "; ".join(dict.fromkeys(part.partition(",")[0] for part in text.split("; ")))


def norms_changed(ours: Any, theirs: Any) -> Iterator[str]:
    """Norms of another kind, in other places, and the final one."""
    titles = [_norm_titles(stack) for stack in (ours, theirs)]
    if titles[0] != titles[1]:
        if not titles[1]:
            yield "No norms."
        else:
            shown = next((norm for norm in _all_norms(theirs) if norm.title == titles[1][0]), None)
            new = ", ".join(titles[1]) if shown is None or len(titles[1]) > 1 else replaced(shown)
            yield f"{new} instead of {', '.join(titles[0])}." if titles[0] else f"{new} as norm."
    places = [
        next(iter(dict.fromkeys(layer.norm_placement for layer in stack.layers))) for stack in (ours, theirs)
    ]
    untold = bool(titles[0]) and not places[0]  # a plugin's layer that does not say where its norms stand
    if places[0] != places[1] and places[1] and titles[1] and not untold:
        names = {"before each part": " (Pre-LN)", "after each sum": " (Post-LN)"}
        old = f" instead of {places[0]}{names.get(places[0], '')}" if places[0] else ""
        yield f"Norms come {places[1]}{names.get(places[1], '')}{old}."
    finals = [getattr(stack, "norm", None) is not None for stack in (ours, theirs)]
    if finals[0] != finals[1]:
        yield "A final norm before the head." if finals[1] else "No final norm before the head."


def _all_norms(stack: Any) -> list[Spec]:
    found = [p for layer in stack.layers for _, p in layer.children() if p.kind == "norm"]
    return found + ([stack.norm] if getattr(stack, "norm", None) is not None else [])


def _norm_titles(stack: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(norm.title for norm in _all_norms(stack)))


def layers_changed(ours: Any, theirs: Any, sizes: bool) -> Iterator[str]:
    """A layer of another kind, and fields of its own."""
    old, new = common(ours.layers), common(theirs.layers)
    assert old is not None and new is not None
    if type(old) is not type(new):
        same_placement = old.norm_placement == new.norm_placement
        if (text := explanation(new)) and (same_placement or not new.norm_placement):
            yield f"The layer: {lowered(text)}."
        elif type(new) is Layer and explanation(old) and (same_placement or not old.norm_placement):
            yield f"A plain layer instead of {article(replaced(old))}."
    for name, (before, after) in changed_fields(old, new).items():
        plain = not isinstance(before, Spec) and not isinstance(after, Spec)
        if not plain or name == "placement" or not (name in vars(old) and name in vars(new)):
            continue
        phrase = FIELDS.get(("layer", name))
        if phrase is None:
            yield f"Layer {name.replace('_', ' ')}: {value_text(after)} instead of {value_text(before)}."
        else:
            yield f"{capital(phrase(before, after))}."


def embedding_changed(old: Any, new: Any) -> Iterator[str]:
    """The embedding: its kind, its scale, its norm."""
    if type(old) is not type(new):
        text = lowered(explanation(new)) or "a plain table of tokens"
        yield f"The embedding: {text}."
    if old.scale != new.scale:
        yield f"Embeddings are {_scaled(new.scale, new.dim)}."
    if (old.norm is None) != (new.norm is None):
        yield f"{new.norm.title} after the embedding." if new.norm else "No norm after the embedding."


def head_changed(base: Any, other: Any) -> Iterator[str]:
    """The head."""
    old, new = base.head, other.head
    if (old is None) != (new is None):
        if new is None:
            yield "No head: the model gives hidden states."
        else:
            yield f"{capital(article(new.title))} is added."
        return
    if old is None:
        return
    if type(old) is not type(new):
        yield f"The head: {replaced(new) if explanation(new) else 'one projection to logits'}."
    if bool(old.ties_embedding) != bool(new.ties_embedding):
        tied = "The head uses the embedding's table (tied)."
        yield tied if new.ties_embedding else "The head has a matrix of its own (not tied)."
    if isinstance(old, Head) and isinstance(new, Head):
        if old.bias != new.bias:
            yield "A bias on the logits." if new.bias else "No bias on the logits."
        if old.scale != new.scale:
            yield f"Hidden states are {_scaled(new.scale, other.dim)} before the head."


def _scaled(scale: float, dim: int) -> str:
    """How something is scaled, in words; √width where the number is that root and no whole number shows which it is."""
    if scale == 1:
        return "not scaled"
    words = factor_words(scale)
    root = factor(dim**0.5)[1]
    if factor(scale)[1] != root:
        return words
    return f"{words} (√width)" if "√" not in root else words.replace(root, "√width")
