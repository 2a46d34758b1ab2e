"""Compares two recipes in sentences: their stacks, positions, norms, layers, embeddings, heads, sizes. Imports no mlx."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zoo.describe.differences.compared import Compared, Row, compared, where
from zoo.describe.differences.parts import (
    FIELDS,
    article,
    as_sentence,
    capital,
    changed_fields,
    explanation,
    lowered,
    part_changes,
    replaced,
    value_text,
)
from zoo.describe.facts.counts import DECODER, ENCODER, is_opaque, stacks
from zoo.describe.facts.fact import billions, factor, factor_words, text_of
from zoo.describe.language import joined, message, reworded
from zoo.recipe import Embedding, Head, Layer, Model, Spec

SHAPES = {
    frozenset((ENCODER, DECODER)): "An encoder reads the source, and a decoder writes the target.",
    frozenset((ENCODER,)): "It is an encoder: it reads a text and writes none.",
    frozenset((DECODER,)): "There is no encoder: one stack of layers reads and writes.",
}
INSTEAD = " instead of "
# What follows it where numbers alone differ: "12 + 12", up to a comma or the end.
SIZE = re.compile(INSTEAD + r"[×/√\d,.e+-]*\d(?: \+ \d+)*(?=, |\.?$)")
SEES = {
    "causal": "A token sees only those before it.",
    "prefix": "The prompt's tokens see each other both ways; what is written sees only what came before.",
    "full": "Every token sees every other.",
}


def differences(base: Model, other: Model, *, sizes: bool = True) -> list[str]:
    """What `other`, a recipe, has that `base` has not, as sentences; [] when they are alike.

    Decoders are compared with decoders and encoders with encoders; where no role is common, the first stack of each.
    `sizes`: also numbers, such as the width; without them only what the models are made of. Raises nothing of its own.

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
    lines: list[str] = []
    if is_opaque(base) or is_opaque(other):
        if base != other:
            lines = ["What the layers of one are made of is not known here: another library's code runs it."]
        return lines + (list(_sizes(base, other)) if sizes else [])
    if set(ours) != set(theirs):
        lines.append(SHAPES[frozenset(theirs)])
    pairs = {role: (ours[role], theirs[role]) for role in ours if role in theirs}
    first = next(iter(ours.values())), next(iter(theirs.values()))
    sentences_of = {
        role: list(_stack(compared(old), compared(new), sizes))
        for role, (old, new) in (pairs or {DECODER: first}).items()
    }
    everywhere = set.intersection(*map(set, sentences_of.values()))
    for role, sentences in sentences_of.items():
        for sentence in sentences:
            if sentence in everywhere:
                lines.append(sentence)
            else:
                rest = reworded(sentence, sentence[:1].lower() + sentence[1:])
                lines.append(message(f"{role.capitalize()}: {{rest}}", rest=rest))
    lines = [
        _with_active(sentence, other) for sentence in dict.fromkeys([*lines, *head_changed(base, other)])
    ]
    if sizes:
        lines += _sizes(base, other)
    return lines


def is_of_sizes(sentence: str) -> bool:
    """Whether a sentence of `differences` says nothing but that a number is another, or that there is a bound on a context.

    >>> from zoo.describe.differences import is_of_sizes
    >>> is_of_sizes("Context of 131,072 instead of 1,024."), is_of_sizes("RMSNorm instead of LayerNorm.")
    (True, False)
    """
    changes = sentence.count(INSTEAD)
    bound = sentence.startswith("Context of ")
    return bound or (changes > 0 and len(SIZE.findall(sentence)) == changes)


def _stack(ours: Compared, theirs: Compared, sizes: bool) -> Iterator[str]:
    if ours.stack.causality != theirs.stack.causality:
        yield SEES[theirs.stack.causality]
    for name in dict.fromkeys((*ours.rows, *theirs.rows)):
        yield from _part(name, ours.rows.get(name), theirs.rows.get(name), len(theirs.stack.layers), sizes)
    yield from positions_changed(ours, theirs)
    yield from norms_changed(ours, theirs)
    yield from layers_changed(ours.layer, theirs.layer)
    yield from embedding_changed(ours.stack.embedding, theirs.stack.embedding)


def _part(
    name: str,
    before: Row | None,
    after: Row | None,
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
    before: Row | None, after: Row | None, layers: int
) -> Iterator[tuple[Spec | None, Spec | None, int, str]]:
    """Each (before, after) of a part, with the number of its layers and their names."""
    if after is None:
        yield before.common if before else None, None, layers, "each layer"
        return
    old, forms = (before.common, before.forms) if before else (None, (None,))
    new = [part for part in after.forms if part not in forms]
    for part in new:
        places = [index for index, one in enumerate(after.each) if one is part]
        yield old, part, len(places), where(places, layers)
    if not new and before is not None:
        for part in before.forms:
            if part not in after.forms:
                yield part, after.common, layers, "each layer"


def _with_active(sentence: str, recipe: Model) -> str:
    """Adds the number of active parameters to a sentence about experts."""
    if "of which a token uses" not in sentence or (counts := compared(recipe).counts) is None:
        return sentence
    used, whole = map(billions, counts)
    same_unit = used.split(" ")[1:] == whole.split(" ")[1:]
    shown = reworded(used, used.split(" ")[0]) if same_unit else used
    rest = reworded(sentence, sentence.rstrip("."))
    return message("{rest} ({n} of {m} parameters are used for a token).", rest=rest, n=shown, m=whole)


def _sizes(base: Model, other: Model) -> Iterator[str]:
    """Sizes of the whole model."""
    for name, text in (("vocab", "Vocabulary of {n}"), ("context", "Context of {n}")):
        old, new = getattr(base, name), getattr(other, name)
        if old != new and new is not None:
            beside = "." if old is None else " instead of {m}."
            yield message(text + beside, n=f"{new:,}", m=text_of(old))
    of_stacks = [list(stacks(recipe).values()) or [recipe] for recipe in (base, other)]
    counts = [" + ".join(str(len(stack.layers)) for stack in stacks_of_one) for stacks_of_one in of_stacks]
    parts = []
    if counts[0] != counts[1]:
        parts.append(message("{n} layers instead of {m}", n=counts[1], m=counts[0]))
    if base.dim != other.dim:
        parts.append(message("width {n} instead of {m}", n=f"{other.dim:,}", m=f"{base.dim:,}"))
    if len(parts) > 1:
        yield message("{layers}, {width}.", layers=parts[0], width=parts[1])
    elif parts:
        yield as_sentence(parts[0])


def positions_changed(ours: Compared, theirs: Compared) -> Iterator[str]:
    """Sentences about another kind of positions. Numbers of rotary positions are told with the mixer."""
    texts = [one.positions.split("; ") for one in (ours, theirs)]
    kinds = [
        joined(
            "; ", dict.fromkeys(part.partition(",")[0] for part in parts if not part.startswith("none in"))
        )
        for parts in texts
    ]
    old, new = (one.stack.embedding.positions for one in (ours, theirs))
    if kinds[0] == kinds[1]:
        if kinds[0] == "rotary":
            yield from _unrotated_layers(ours.unrotated, theirs.unrotated)
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
        yield message(template, new=theirs.positions, old=kinds[0])


def _unrotated_layers(before: str, after: str) -> Iterator[str]:
    """A sentence about layers without positions, where the other model has them in others or in all."""
    if after and after != before:
        yield message("In {place}: {rest}.", place=after, rest="no positions")
    elif before and not after:
        yield "Every layer has positions."


POSITION_FIELDS = {
    ("interleaved", False): "All sines of the positions come before all cosines.",
    ("interleaved", True): "Sines and cosines of the positions stand side by side.",
    ("inclusive", True): "The slowest pair of dimensions turns at exactly 1/theta.",
    ("inclusive", False): "The slowest pair of dimensions turns faster than 1/theta.",
}


def norms_changed(ours: Compared, theirs: Compared) -> Iterator[str]:
    """Sentences about the kind and places of norms, and about the final norm."""
    norms = [one.norms for one in (ours, theirs)]
    titles = [[norm.title for norm in of_stack] for of_stack in norms]
    if titles[0] != titles[1] and not titles[1]:
        yield "No norms."
    elif titles[0] != titles[1]:
        new = replaced(norms[1][0]) if len(titles[1]) == 1 else joined(", ", titles[1])
        template = "{new} instead of {old}." if titles[0] else "{new} as norm."
        yield message(template, new=new, old=joined(", ", titles[0]))
    places = [one.stack.layers[0].norm_placement for one in (ours, theirs)]
    untold = bool(titles[0]) and not places[0]  # a plugin's layer that does not say where its norms stand
    if places[0] != places[1] and places[1] and titles[1] and not untold:
        names = {"before each part": " (Pre-LN)", "after each sum": " (Post-LN)"}
        old, new = (f"{place}{names.get(place, '')}" for place in places)
        template = "Norms come {place} instead of {other}." if places[0] else "Norms come {place}."
        yield message(template, place=new, other=old)
    finals = [getattr(one.stack, "norm", None) is not None for one in (ours, theirs)]
    if finals[0] != finals[1]:
        yield "A final norm before the head." if finals[1] else "No final norm before the head."


def layers_changed(old: Spec, new: Spec) -> Iterator[str]:
    """Sentences about another kind of layer, and about its plain fields."""
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
    if old is None or new is None:
        if old is not None:
            yield "No head: the model gives hidden states."
        elif new is not None:
            yield message("{kind} is added.", kind=capital(article(new.title)))
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
