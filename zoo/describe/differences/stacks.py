"""Sentences about a whole stack: positions, norms, the kind of layer, embedding and head. Imports no mlx."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from zoo.describe.differences.fields import FIELDS
from zoo.describe.differences.parts import (
    article,
    as_sentence,
    capital,
    changed_fields,
    explanation,
    lowered,
    replaced,
    value_text,
)
from zoo.describe.facts.fact import factor, factor_words
from zoo.describe.facts.structure import positions
from zoo.describe.language import joined, message
from zoo.recipe import Embedding, Head, Layer, Model, Spec


def common(parts: Sequence[Spec | None]) -> Spec | None:
    """The most frequent form of a part among the layers; None without layers."""
    return Counter(parts).most_common(1)[0][0] if parts else None


def positions_changed(ours: Model, theirs: Model) -> Iterator[str]:
    """Sentences about another kind of positions. Numbers of rotary positions are told with the mixer."""
    kinds = [_kind_of_positions(stack) for stack in (ours, theirs)]
    old, new = ours.embedding.positions, theirs.embedding.positions
    if kinds[0] == kinds[1]:
        if old is not None and new is not None and type(old) is type(new):
            for name, (_, value) in changed_fields(old, new).items():
                if name == "offset":
                    yield message("Positions begin at {n}.", n=value)
                elif name != "context":
                    text = message(f"Positions: {name} {{new}}.", new=value_text(value))
                    yield POSITION_FIELDS.get((name, value), text)
    elif not kinds[1]:
        template = "No positions, where the other has {kind} ones: the layers read tokens in their order."
        yield message(template, kind=kinds[0])
    else:
        template = "Positions: {new} instead of {old}." if kinds[0] else "Positions: {new}."
        yield message(template, new=positions(theirs), old=kinds[0])


POSITION_FIELDS = {
    ("interleaved", False): "All sines of the positions come before all cosines.",
    ("interleaved", True): "Sines and cosines of the positions stand side by side.",
    ("inclusive", True): "The slowest position turns at exactly 1/theta.",
    ("inclusive", False): "The slowest position turns faster than 1/theta.",
}


def _kind_of_positions(stack: Model) -> str:
    text = positions(stack) or ""
    return joined("; ", dict.fromkeys(part.partition(",")[0] for part in text.split("; ")))


def norms_changed(ours: Model, theirs: Model) -> Iterator[str]:
    """Sentences about the kind and places of norms, and about the final norm."""
    titles = [_norm_titles(stack) for stack in (ours, theirs)]
    if titles[0] != titles[1]:
        if not titles[1]:
            yield "No norms."
        else:
            shown = next((norm for norm in _all_norms(theirs) if norm.title == titles[1][0]), None)
            new = joined(", ", titles[1]) if shown is None or len(titles[1]) > 1 else replaced(shown)
            template = "{new} instead of {old}." if titles[0] else "{new} as norm."
            yield message(template, new=new, old=joined(", ", titles[0]))
    places = [
        next(iter(dict.fromkeys(layer.norm_placement for layer in stack.layers))) for stack in (ours, theirs)
    ]
    untold = bool(titles[0]) and not places[0]  # a plugin's layer that does not say where its norms stand
    if places[0] != places[1] and places[1] and titles[1] and not untold:
        names = {"before each part": " (Pre-LN)", "after each sum": " (Post-LN)"}
        old, new = (f"{place}{names.get(place, '')}" for place in places)
        template = "Norms come {place} instead of {other}." if places[0] else "Norms come {place}."
        yield message(template, place=new, other=old)
    finals = [_final_norm(stack) is not None for stack in (ours, theirs)]
    if finals[0] != finals[1]:
        yield "A final norm before the head." if finals[1] else "No final norm before the head."


def _all_norms(stack: Model) -> list[Spec]:
    found = [part for layer in stack.layers for _, part in layer.children() if part.kind == "norm"]
    final = _final_norm(stack)
    return found if final is None else [*found, final]


def _final_norm(stack: Model) -> Spec | None:
    return getattr(stack, "norm", None)


def _norm_titles(stack: Model) -> tuple[str, ...]:
    return tuple(dict.fromkeys(norm.title for norm in _all_norms(stack)))


def layers_changed(ours: Model, theirs: Model) -> Iterator[str]:
    """Sentences about another kind of layer, and about its plain fields."""
    old, new = common(ours.layers), common(theirs.layers)
    assert old is not None and new is not None
    if type(old) is not type(new):
        same_placement = old.norm_placement == new.norm_placement
        if (text := explanation(new)) and (same_placement or not new.norm_placement):
            yield message("The layer: {text}.", text=lowered(text))
        elif type(new) is Layer and explanation(old) and (same_placement or not old.norm_placement):
            yield message("A plain layer instead of {old}.", old=article(replaced(old)))
    for name, (before, after) in changed_fields(old, new).items():
        plain = not isinstance(before, Spec) and not isinstance(after, Spec)
        if not plain or name == "placement" or not (name in vars(old) and name in vars(new)):
            continue
        phrase = FIELDS.get(("layer", name))
        if phrase is None:
            template = f"Layer {name.replace('_', ' ')}: {{new}} instead of {{old}}."
            yield message(template, new=value_text(after), old=value_text(before))
        else:
            yield as_sentence(phrase(before, after))


def embedding_changed(old: Embedding, new: Embedding) -> Iterator[str]:
    """Sentences about the embedding's kind, scale and norm."""
    if type(old) is not type(new):
        text = lowered(explanation(new)) or "a plain table of tokens"
        yield message("The embedding: {text}.", text=text)
    if old.scale != new.scale:
        yield message("Embeddings are {how}.", how=_scaled(new.scale, new.dim))
    if (old.norm is None) != (new.norm is None):
        added = message("{norm} after the embedding.", norm=new.norm.title) if new.norm else ""
        yield added or "No norm after the embedding."


def head_changed(base: Model, other: Model) -> Iterator[str]:
    """Sentences about the head."""
    old, new = base.head, other.head
    if (old is None) != (new is None):
        if new is None:
            yield "No head: the model gives hidden states."
        else:
            yield message("{kind} is added.", kind=capital(article(new.title)))
        return
    if old is None:
        return
    if type(old) is not type(new):
        text = replaced(new) if explanation(new) else "one projection to logits"
        yield message("The head: {text}.", text=text)
    if bool(old.ties_embedding) != bool(new.ties_embedding):
        tied = "The head uses the embedding's table (tied)."
        yield tied if new.ties_embedding else "The head has a matrix of its own (not tied)."
    if isinstance(old, Head) and isinstance(new, Head):
        if old.bias != new.bias:
            yield "A bias on the logits." if new.bias else "No bias on the logits."
        if old.scale != new.scale:
            yield message("Hidden states are {how} before the head.", how=_scaled(new.scale, other.dim))


def _scaled(scale: float, dim: int) -> str:
    """A scale in words. "√width" replaces the number where it is that root."""
    if scale == 1:
        return "not scaled"
    words = factor_words(scale)
    root = factor(dim**0.5)[1]
    if factor(scale)[1] != root:
        return words
    if "√" not in root:
        return message("{how} (√width)", how=words)
    return message(words.template, n="√width")
