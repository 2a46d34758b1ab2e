"""Compares two recipes in sentences. Imports no mlx."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from zoo.describe.differences.parts import as_sentence, part_changes
from zoo.describe.differences.stacks import (
    common,
    embedding_changed,
    head_changed,
    layers_changed,
    norms_changed,
    positions_changed,
)
from zoo.describe.facts.fact import billions, text_of
from zoo.describe.facts.parameters import has_idle_experts
from zoo.describe.facts.stacks import DECODER, ENCODER, is_opaque, stacks
from zoo.describe.language import message, reworded
from zoo.recipe import Model, Spec

SEES = {
    "causal": "A token sees only those before it.",
    "prefix": "The prompt's tokens see each other both ways; what is written sees only what came before.",
    "full": "Every token sees every other.",
}


def differences(base: Model, other: Model, *, sizes: bool = True) -> list[str]:
    """What `other`, a recipe, has that `base` has not, as sentences; [] when they are alike.

    Decoders are compared with decoders and encoders with encoders. `sizes`: also numbers, such as the width;
    without them only what the models are made of. Raises nothing of its own.

    >>> from zoo.describe import describe
    >>> from zoo.describe.differences import differences
    >>> from zoo.host.registry import default_registry
    >>> gpt2, postln = (describe(name, default_registry()).recipe for name in ("gpt2", "gpt2-postln"))
    >>> for sentence in differences(gpt2, postln):
    ...     print(sentence)
    Norms come after each sum (Post-LN) instead of before each part (Pre-LN).
    No final norm before the head.
    """
    ours, theirs = stacks(base), stacks(other)
    found: list[str] = []
    if is_opaque(base) or is_opaque(other):
        if base != other:
            found.append(
                "What the layers of one are made of is not known here: another library's code runs it."
            )
        return found + (list(_sizes(base, other)) if sizes else [])
    found += _shape(ours, theirs)
    pairs = _pairs(ours, theirs)
    sentences_of = {role: list(_stack(*pair, sizes)) for role, pair in pairs.items()}
    everywhere = (
        set.intersection(*(set(sentences) for sentences in sentences_of.values())) if sentences_of else set()
    )
    for role, sentences in sentences_of.items():
        for sentence in sentences:
            if sentence in everywhere or len(sentences_of) == 1:
                found.append(sentence)
            else:
                rest = reworded(sentence, sentence[:1].lower() + sentence[1:])
                found.append(message(f"{role.capitalize()}: {{rest}}", rest=rest))
    found += head_changed(base, other)
    found = list(dict.fromkeys(found))
    found = [_with_active(sentence, other) for sentence in found]
    if sizes:
        found += _sizes(base, other)
    return found


def _shape(ours: dict[str, Model], theirs: dict[str, Model]) -> Iterator[str]:
    """Whether there is an encoder, a decoder or both."""
    if set(ours) == set(theirs):
        return
    if set(theirs) == {ENCODER, DECODER}:
        yield "An encoder reads the source, and a decoder writes the target."
    elif set(theirs) == {ENCODER}:
        yield "It is an encoder: it reads a text and writes none."
    else:
        yield "There is no encoder: one stack of layers reads and writes."


def _pairs(ours: dict[str, Model], theirs: dict[str, Model]) -> dict[str, tuple[Any, Any]]:
    """Pairs of stacks by role; where no role is common, the first stack of each."""
    common = {role: (ours[role], theirs[role]) for role in ours if role in theirs}
    if common or not (ours and theirs):
        return common
    return {DECODER: (next(iter(ours.values())), next(iter(theirs.values())))}


def _stack(ours: Model, theirs: Model, sizes: bool) -> Iterator[str]:
    if ours.causality != theirs.causality:
        yield SEES[theirs.causality]
    before, after = (_parts(stack) for stack in (ours, theirs))
    for name in dict.fromkeys((*before, *after)):
        yield from _part(name, before.get(name), after.get(name), len(theirs.layers), sizes)
    yield from positions_changed(ours, theirs)
    yield from norms_changed(ours, theirs)
    yield from layers_changed(ours, theirs)
    yield from embedding_changed(ours.embedding, theirs.embedding)


def _parts(stack: Model) -> dict[str, list[Spec | None]]:
    """The parts of the layers by name, one for each layer; norms are left out."""
    found: dict[str, list[Spec | None]] = {}
    spelled: dict[tuple[int, int], Spec] = {}  # equal layers mostly are one object
    for index, layer in enumerate(stack.layers):
        for name, part in layer.children():
            if part.kind != "norm":
                row = found.setdefault(name, [None] * len(stack.layers))
                key = (id(part), layer.width(name, stack.dim))
                if key not in spelled:
                    spelled[key] = _spelled_out(part, key[1])
                row[index] = spelled[key]
    return found


def _spelled_out(part: Spec, dim: int) -> Spec:
    """Attention with its defaults filled in: key/value heads, head width; None for the usual scale."""
    fields = vars(part)
    if not {"heads", "kv_heads", "head_dim", "scale"} <= fields.keys():
        return part
    width = fields["head_dim"] or dim // fields["heads"]
    scale = fields["scale"]
    usual = scale is None or math.isclose(scale, width**-0.5)
    kv_heads = fields["kv_heads"] or fields["heads"]
    return part.change(kv_heads=kv_heads, head_dim=width, scale=None if usual else scale)


def _part(
    name: str,
    before: Sequence[Spec | None] | None,
    after: Sequence[Spec | None] | None,
    layers: int,
    sizes: bool,
) -> Iterator[str]:
    """Sentences about one part of the layers. A sentence that holds for some layers only names them."""
    variants = list(_variants(before, after, layers))
    everywhere = sum(count for _, _, count, _ in variants) == layers
    plain = [list(part_changes(old, new, "each layer", name, sizes)) for old, new, _, _ in variants]
    shared = set.intersection(*map(set, plain)) if plain and everywhere else set()
    for (old, new, _, place), sentences in zip(variants, plain, strict=True):
        placed = part_changes(old, new, place, name, sizes)
        for sentence, with_place in zip(sentences, placed, strict=True):
            if sentence:
                yield sentence if sentence in shared else with_place


def _variants(
    before: Sequence[Spec | None] | None, after: Sequence[Spec | None] | None, layers: int
) -> Iterator[tuple[Spec | None, Spec | None, int, str]]:
    """Each (before, after) of a part, with the number of its layers and their names."""
    if after is None:
        yield common(before or ()), None, layers, "each layer"
        return
    old = common(before or (None,))
    new = [part for part in dict.fromkeys(after) if part not in (before or (None,))]
    for part in new:
        places = [index for index, one in enumerate(after) if one == part]
        yield old, part, len(places), where(places, layers)
    if not new and before is not None:
        for part in dict.fromkeys(before):
            if part not in after:
                yield part, common(after), layers, "each layer"


def where(places: Sequence[int], layers: int) -> str:
    """A text for some of the layers, by their indices: "every other layer"."""
    if len(places) == layers:
        return "each layer"
    if len(places) == 1:
        return message("layer {n} of {m}", n=places[0] + 1, m=layers)
    if list(places) == list(range(len(places))):
        return message("the first {n} layers", n=len(places))
    if list(places) == list(range(layers - len(places), layers)):
        return message("the last {n} of {m} layers", n=len(places), m=layers)
    steps = {b - a for a, b in itertools.pairwise(places)}
    if len(steps) == 1 and places[0] < (step := steps.pop()) and len(places) > 1:
        return "every other layer" if step == 2 else message("one layer in {n}", n=step)
    return message("{n} of {m} layers", n=len(places), m=layers)


def _with_active(sentence: str, recipe: Model) -> str:
    """Adds the number of active parameters to a sentence about experts."""
    if "of which a token uses" not in sentence:
        return sentence
    if not has_idle_experts(recipe):
        return sentence
    total, active = (int(count(recipe.dim)) for count in (recipe.parameters, recipe.active_parameters))
    used, whole = billions(active), billions(total)
    if used.split(" ")[1:] == whole.split(" ")[1:]:
        used = used.reworded(used.split(" ")[0])
    rest = reworded(sentence, sentence.rstrip("."))
    return message("{rest} ({n} of {m} parameters are used for a token).", rest=rest, n=used, m=whole)


def _sizes(base: Model, other: Model) -> Iterator[str]:
    """Sizes of the whole model."""
    for name, text in (("vocab", "Vocabulary of {n}"), ("context", "Context of {n}")):
        old, new = getattr(base, name), getattr(other, name)
        if old != new and new is not None:
            beside = "." if old is None else " instead of {m}."
            yield message(text + beside, n=f"{new:,}", m=text_of(old))
    counts = [_layer_counts(recipe) for recipe in (base, other)]
    parts = []
    if counts[0] != counts[1]:
        parts.append(message("{n} layers instead of {m}", n=counts[1], m=counts[0]))
    if base.dim != other.dim:
        parts.append(message("width {n} instead of {m}", n=f"{other.dim:,}", m=f"{base.dim:,}"))
    if len(parts) > 1:
        yield message("{layers}, {width}.", layers=parts[0], width=parts[1])
    elif parts:
        yield as_sentence(parts[0])


def _layer_counts(recipe: Model) -> str:
    found = stacks(recipe)
    if len(found) > 1:
        return " + ".join(str(len(stack.layers)) for stack in found.values())
    return str(len(recipe.layers))
