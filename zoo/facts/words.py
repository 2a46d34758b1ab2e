"""The differences between two models, in sentences. Imports no mlx."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from zoo.facts.fact import billions
from zoo.facts.phrases import changed_fields, explanation, lowered, part_changes, replaced, value_text
from zoo.facts.stacks import DECODER, ENCODER, is_opaque, stacks
from zoo.facts.structure import positions
from zoo.recipe import Head, Spec

SEES = {
    "causal": "A token sees only those before it.",
    "prefix": "The prompt's tokens see each other both ways; what is written sees only what came before.",
    "full": "Every token sees every other.",
}


def differences(base: Any, other: Any, *, sizes: bool = True) -> list[str]:
    """What `other`, a recipe, has that `base` has not, as sentences; [] when they are alike.

    Decoders are compared with decoders and encoders with encoders. `sizes`: numbers, such as the width, are told too;
    without them only what the models are made of.
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
    told = {role: list(_stack(*pair, sizes)) for role, pair in pairs.items()}
    everywhere = set.intersection(*(set(sentences) for sentences in told.values())) if told else set()
    for role, sentences in told.items():
        for sentence in sentences:
            if sentence in everywhere or len(told) == 1:
                found.append(sentence)
            else:
                found.append(f"{role.capitalize()}: {sentence[:1].lower() + sentence[1:]}")
    found += _ends(base, other)
    found = list(dict.fromkeys(found))
    found = [_with_active(sentence, other) for sentence in found]
    if sizes:
        found += _sizes(base, other)
    return found


def _shape(ours: dict[str, Any], theirs: dict[str, Any]) -> Iterator[str]:
    """Whether there is an encoder, a decoder or both."""
    if set(ours) == set(theirs):
        return
    if set(theirs) == {ENCODER, DECODER}:
        yield "An encoder reads the source, and a decoder writes the target."
    elif set(theirs) == {ENCODER}:
        yield "It is an encoder: it reads a text and writes none."
    else:
        yield "There is no encoder: one stack of layers reads and writes."


def _pairs(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Stacks of one role; the only stacks of each where they have none in common."""
    common = {role: (ours[role], theirs[role]) for role in ours if role in theirs}
    if common or not (ours and theirs):
        return common
    return {DECODER: (next(iter(ours.values())), next(iter(theirs.values())))}


def _stack(ours: Any, theirs: Any, sizes: bool) -> Iterator[str]:
    if ours.causality != theirs.causality:
        yield SEES[theirs.causality]
    before, after = (_parts(stack) for stack in (ours, theirs))
    for name in dict.fromkeys((*before, *after)):
        yield from _part(name, before.get(name), after.get(name), len(theirs.layers), sizes)
    yield from _positions(ours, theirs)
    yield from _norms(ours, theirs)
    yield from _layers(ours, theirs, sizes)
    yield from _embedding(ours.embedding, theirs.embedding)


def _parts(stack: Any) -> dict[str, list[Spec | None]]:
    """Each part of the layers, norms aside, by name: one a layer."""
    found: dict[str, list[Spec | None]] = {}
    for index, layer in enumerate(stack.layers):
        for name, part in layer.children():
            if part.kind != "norm":
                row = found.setdefault(name, [None] * len(stack.layers))
                row[index] = _spelled_out(part, layer.width(name, stack.dim))
    return found


def _spelled_out(part: Any, dim: int) -> Spec:
    """Attention with its numbers of heads, their width and its usual scale, which may be left to be understood."""
    names = vars(part)
    if not {"heads", "kv_heads", "head_dim", "scale"} <= names.keys():
        return part
    width = part.head_dim or dim // part.heads
    usual = part.scale is None or math.isclose(part.scale, width**-0.5)
    return part.change(
        kv_heads=part.kv_heads or part.heads, head_dim=width, scale=None if usual else part.scale
    )


def _part(
    name: str,
    before: Sequence[Spec | None] | None,
    after: Sequence[Spec | None] | None,
    layers: int,
    sizes: bool,
) -> Iterator[str]:
    """Sentences about one part of the layers; what is true of all is said once, else with the layers it is true of."""
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
    """Pairs of what a part was and is, with how many layers and which are so."""
    if after is None:
        yield _common(before or ()), None, layers, "each layer"
        return
    old = _common(before or (None,))
    new = [part for part in dict.fromkeys(after) if part not in (before or (None,))]
    for part in new:
        places = [index for index, one in enumerate(after) if one == part]
        yield old, part, len(places), where(places, layers)
    if not new and before is not None:
        for part in dict.fromkeys(before):
            if part not in after:
                yield part, _common(after), layers, "each layer"


def _common(parts: Sequence[Spec | None]) -> Spec | None:
    return Counter(parts).most_common(1)[0][0] if parts else None


def where(places: Sequence[int], layers: int) -> str:
    """Which of so many layers, in words."""
    if len(places) == layers:
        return "each layer"
    if len(places) == 1:
        return f"layer {places[0] + 1} of {layers}"
    if list(places) == list(range(len(places))):
        return f"the first {len(places)} layers"
    if list(places) == list(range(layers - len(places), layers)):
        return f"the last {len(places)} of {layers} layers"
    steps = {b - a for a, b in itertools.pairwise(places)}
    if len(steps) == 1 and places[0] < (step := steps.pop()) and len(places) > 1:
        return "every other layer" if step == 2 else f"one layer in {step}"
    return f"{len(places)} of {layers} layers"


def _positions(ours: Any, theirs: Any) -> Iterator[str]:
    """Positions of another kind; rotary ones that differ in numbers are told with the mixer."""
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
}


def _kind_of_positions(stack: Any) -> str:
    text = positions(stack) or ""
    return "; ".join(dict.fromkeys(part.partition(",")[0] for part in text.split("; ")))


def _norms(ours: Any, theirs: Any) -> Iterator[str]:
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
    if places[0] != places[1] and places[1] and titles[1]:
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


def _layers(ours: Any, theirs: Any, sizes: bool) -> Iterator[str]:
    """A layer of another kind, and fields of its own."""
    old, new = _common(ours.layers), _common(theirs.layers)
    assert old is not None and new is not None
    if type(old) is not type(new):
        same_placement = old.norm_placement == new.norm_placement
        if (text := explanation(new)) and (same_placement or not new.norm_placement):
            yield f"The layer: {lowered(text)}."
        return
    for name, (before, after) in changed_fields(old, new).items():
        plain = not isinstance(before, Spec) and not isinstance(after, Spec)
        if plain and name != "placement":
            yield f"Layer {name.replace('_', ' ')}: {value_text(after)} instead of {value_text(before)}."


def _embedding(old: Any, new: Any) -> Iterator[str]:
    if type(old) is not type(new):
        text = lowered(explanation(new)) or "a plain table of tokens"
        yield f"The embedding: {text}."
    if old.scale != new.scale:
        rooted = abs(new.scale - new.dim**0.5) < 1e-6 * new.scale
        factor = "√width" if rooted and new.scale != 1 else f"{new.scale:g}"
        yield "Embeddings are not scaled." if new.scale == 1 else f"Embeddings are multiplied by {factor}."
    if (old.norm is None) != (new.norm is None):
        yield f"{new.norm.title} after the embedding." if new.norm else "No norm after the embedding."


def _ends(base: Any, other: Any) -> Iterator[str]:
    """The head."""
    old, new = base.head, other.head
    if (old is None) != (new is None):
        yield "No head: the model gives hidden states." if new is None else f"A head that gives {new.title}."
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
            rooted = math.isclose(new.scale, other.dim**-0.5)
            how = "divided by √width" if rooted else f"multiplied by {new.scale:g}"
            yield f"Hidden states are {'not scaled' if new.scale == 1 else how} before the head."


def _with_active(sentence: str, recipe: Any) -> str:
    """A sentence about experts, with how many parameters a token uses."""
    total, active = (int(count(recipe.dim)) for count in (recipe.parameters, recipe.active_parameters))
    if total == active or "of which a token uses" not in sentence:
        return sentence
    used, whole = billions(active), billions(total)
    if used.split(" ")[1:] == whole.split(" ")[1:]:
        used = used.split(" ")[0]
    return f"{sentence.rstrip('.')} ({used} of {whole} parameters are used for a token)."


def _sizes(base: Any, other: Any) -> Iterator[str]:
    """Sizes of the whole model."""
    for name, text in (("vocab", "Vocabulary of {}"), ("context", "Context of {}")):
        old, new = getattr(base, name), getattr(other, name)
        if old != new and new is not None:
            beside = f" instead of {old:,}" if old is not None else ""
            yield f"{text.format(f'{new:,}')}{beside}."
    counts = [_layer_counts(recipe) for recipe in (base, other)]
    parts = []
    if counts[0] != counts[1]:
        parts.append(f"{counts[1]} layers instead of {counts[0]}")
    if base.dim != other.dim:
        parts.append(f"width {other.dim:,} instead of {base.dim:,}")
    if parts:
        text = ", ".join(parts)
        yield f"{text[:1].upper()}{text[1:]}."


def _layer_counts(recipe: Any) -> str:
    found = stacks(recipe)
    if len(found) > 1:
        return " + ".join(str(len(stack.layers)) for stack in found.values())
    return str(len(recipe.layers))
