"""Sentences about one part of a layer that differs from another model's. Imports no mlx.

Each field of the zoo's own specs has a sentence of its own. Other fields are named, and blocks of a third party are
described by the first sentence of their docstring.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

from zoo.describe.differences.fields import FIELDS, SIZES, TOGETHER, same_numbers, value_text
from zoo.recipe import Spec
from zoo.recipe.spec import in_words

PARTS = {"mixer": "mixer", "feedforward": "feed-forward", "cross": "cross-attention"}
FIELD_WORDS = {"shared": "shared expert"}


def changed_fields(before: Spec, after: Spec) -> dict[str, tuple[Any, Any]]:
    """The fields of `after` whose values differ from those of `before`, and those that only one has (None)."""
    values = [{f.name: getattr(spec, f.name) for f in dataclasses.fields(spec)} for spec in (before, after)]
    names = dict.fromkeys((*values[0], *values[1]))
    pairs = {name: (values[0].get(name), values[1].get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def is_known(spec: Spec) -> bool:
    """Whether a block is one of the zoo's core, which needs no explanation beyond its title."""
    return type(spec).__module__.startswith("zoo.")


def explanation(spec: Spec) -> str:
    """What a plugin's block is, by the first sentence of its docstring, without references; "" where it has none."""
    text = " ".join((type(spec).__doc__ or "").split())
    if is_known(spec) or not text or text.startswith(f"{type(spec).__name__}("):
        return ""
    text = re.sub(r"\s*\([^()]*\b(?:19|20)\d\d\b[^()]*\)", "", text)
    sentence = re.split(r"[.](?:\s|$)", text, maxsplit=1)[0]
    sentence = re.sub(r"`(\w+)`", lambda found: value_text(getattr(spec, found[1], found[1])), sentence)
    title, colon, rest = sentence.partition(": ")
    return rest if colon and title.lower() == spec.title.lower() else sentence


def lowered(text: str) -> str:
    """A text as the middle of a sentence: its first letter is small, unless it begins a name or a formula."""
    word = text.partition(" ")[0]
    plain = re.fullmatch(r"[A-Z](?:[a-z]+(?:-[a-z]+)*)?[,:]?", word)
    return text[:1].lower() + text[1:] if plain and (len(word) > 1 or word == "A") else text


def capital(text: str) -> str:
    """A text as the beginning of a sentence."""
    return (
        text[:1].upper() + text[1:] if text[1:2].islower() or text[1:2] == "-" or text[:2] == "a " else text
    )


def replaced(spec: Spec) -> str:
    """A block's title, with what it is where that is not generally known."""
    text = explanation(spec)
    return f"{spec.title} ({lowered(text)})" if text else spec.title


def part_changes(
    before: Spec | None, after: Spec | None, place: str, part: str, sizes: bool
) -> Iterator[str]:
    """Sentences about a part that a layer has in another form; `place` names the layers: "each layer"."""
    word = PARTS.get(part, in_words(part.replace("_", " ")))
    if before is None and after is not None:
        yield f"{capital(replaced(after))} is added to {place}."
    elif after is None and before is not None:
        yield f"No layer has {article(word)}."
    elif before is not None and after is not None:
        yield from _changes(before, after, place, word, sizes)


def _changes(before: Spec, after: Spec, place: str, word: str, sizes: bool) -> Iterator[str]:
    changed = changed_fields(before, after)
    alike, renamed = type(before) is type(after), before.title != after.title
    related = alike or isinstance(after, type(before)) or isinstance(before, type(after))
    if after.kind == "feedforward" and (renamed or not alike):
        yield from _feedforward(before, after, place)
        related = related and not _has_experts(after)
        if explanation(after):
            changed = {name: pair for name, pair in changed.items() if name in vars(before)}
        for name in ("activation", "router", "experts", "shared", "shared_gate", "bias"):
            changed.pop(name, None)
    elif not alike:
        yield _sentence(place, f"{replaced(after)} instead of {before.title}")
        if explanation(after):  # it describes what is new
            changed = {name: pair for name, pair in changed.items() if name in vars(before)}
    elif renamed and sizes:
        old, new = (_with_heads(spec) for spec in (before, after))
        yield _sentence(place, f"{new} instead of {old}")
        changed = {name: pair for name, pair in changed.items() if name not in ("heads", "kv_heads")}
    if related:
        yield from field_changes(before, after, changed, place, word, sizes)


def _with_heads(spec: Any) -> str:
    """Attention with its numbers of heads."""
    heads, groups = (vars(spec).get(name) for name in ("heads", "kv_heads"))
    if not heads:
        return str(spec.title)
    grouped = f" and {groups} key/value heads" if groups and groups != heads else ""
    return f"{spec.title} with {heads} heads{grouped}"


def field_changes(
    before: Spec, after: Spec, changed: dict[str, tuple[Any, Any]], place: str, word: str, sizes: bool
) -> Iterator[str]:
    """A sentence for each field that differs: of those that are known their own, of others name and values."""
    if not sizes:
        changed = {name: pair for name, pair in changed.items() if name not in SIZES}
    done: set[str] = set()
    for name, pair in changed.items():
        if name in done or (name == "kv_heads" and _all_heads(before) and _all_heads(after)):
            continue
        if name == "rope" and not sizes:
            pair = same_numbers(*pair)
        if (phrase := FIELDS.get((after.kind, name))) is not None:
            text = phrase(*pair)
            done |= TOGETHER.get(name, set())
            if text:
                yield _sentence(place, text)
        elif all(isinstance(value, Spec) for value in pair) and pair[0].kind == pair[1].kind:
            yield from _changes(*pair, place, f"{word}'s {field_word(name)}", sizes)
        elif isinstance(pair[1], Spec) and pair[0] is None:
            yield _sentence(place, f"{replaced(pair[1])} as the {word}'s {field_word(name)}")
        elif name in vars(after):
            old = "" if pair[0] is None and name not in vars(before) else f" instead of {value_text(pair[0])}"
            yield _sentence(place, f"{word} {field_word(name)}: {value_text(pair[1])}{old}")


def field_word(name: str) -> str:
    """A field's name as a sentence has it."""
    return FIELD_WORDS.get(name, name.replace("_", " "))


def _all_heads(spec: Any) -> bool:
    return vars(spec).get("heads") == vars(spec).get("kv_heads")


def _has_experts(spec: Spec) -> bool:
    return any(part.kind == "experts" for _, part in spec.walk())


def _feedforward(before: Spec, after: Spec, place: str) -> Iterator[str]:
    """A feed-forward of another kind; of experts, how many there are and how many are used."""
    if not _has_experts(after):
        if _has_experts(before):
            yield _sentence(place, f"one feed-forward, {replaced(after)}, takes the place of the experts")
        else:
            yield _sentence(place, f"{replaced(after)} instead of {before.title}")
        return
    parts = {part.kind: part for _, part in after.walk()}
    count, used = getattr(parts["experts"], "count", 0), getattr(parts.get("router"), "top_k", None)
    kind = (
        ""
        if is_known(parts["experts"])
        else f" ({lowered(explanation(parts['experts'])) or parts['experts'].title})"
    )
    of_which = f", of which a token uses {used}" if used else ""
    shared = getattr(after, "shared", None)
    gated = ", times a gate" if getattr(after, "shared_gate", False) else ""
    beside = f", and one shared expert that every token uses{gated}" if shared is not None else ""
    if _has_experts(before):
        yield _sentence(place, f"{count} experts{kind}{of_which}{beside}")
    else:
        owner = "each layer's feed-forward" if place == "each layer" else f"the feed-forward of {place}"
        yield f"{capital(owner)} is replaced by {count} experts{kind}{of_which}{beside}."
    router = parts.get("router")
    if router is not None and not is_known(router) and explanation(router):
        yield f"The router: {lowered(explanation(router))}."


def article(text: str) -> str:
    """A noun with its article: "a feed-forward"."""
    return text if text.endswith("attention") else f"a{'n' if text[:1].lower() in 'aeiou' else ''} {text}"


def _sentence(place: str, text: str) -> str:
    """A sentence with its layers, which are not named where they are all."""
    if not text:
        return ""
    return f"{capital(text)}." if place == "each layer" else f"In {place}: {lowered(text)}."
