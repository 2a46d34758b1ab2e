"""Sentences about one part of a layer that differs from another model's. Imports no mlx.

Each field of the zoo's own specs has a sentence of its own, in `FIELDS`. Other fields are named, and blocks of a third party are
described by the first sentence of their docstring.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from zoo.describe.facts.fact import factor_words, text_of
from zoo.describe.facts.structure import scaling_text
from zoo.describe.language import joined, message, reworded
from zoo.recipe import JointRMSNorm, RoPE, Spec
from zoo.recipe.parts import ACTIVATION_TITLES
from zoo.recipe.spec import field_names, in_words

# Fields that are sizes: left out where a variant has its base's numbers.
SIZES = frozenset(
    (
        *("heads", "kv_heads", "head_dim", "hidden", "vocab", "dim", "context", "count", "experts", "top_k"),
        *("eps", "theta", "token_types", "module", "settings", "depth", "parameter_count"),
    )
)


def value_text(value: Any) -> str:
    """A field's value in a sentence."""
    if isinstance(value, Spec):
        return value.title
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return joined(", ", map(value_text, value))
    return text_of(value)


def _window(old: int | None, new: int | None) -> str:
    if new is None:
        return "attention has no window"
    template = "attention sees a window of {n} tokens" + (" instead of {m}" if old else "")
    return message(template, n=text_of(new), m=text_of(old))


def _rope(old: object, new: object) -> str:
    """Changed numbers of rotary positions; "" where the kind changed, which `positions_changed` tells."""
    if not isinstance(old, RoPE) or not isinstance(new, RoPE):
        return ""
    parts: list[str] = []
    if (old.theta, old.scaling) != (new.theta, new.scaling):
        texts = [f"{rope.theta:,.12g}" for rope in (old, new)]
        if old.scaling != new.scaling:
            texts = [_with_scaling(text, rope) for text, rope in zip(texts, (old, new), strict=True)]
        parts.append(message("rotary base {new} instead of {old}", new=texts[1], old=texts[0]))
    if old.dims != new.dims:
        part = message("{n} of each head are rotated", n=new.dims)
        parts.append("all of each head is rotated" if new.dims is None else part)
    if old.interleaved != new.interleaved:
        parts.append(f"rotated dimensions are paired {'as neighbours' if new.interleaved else 'by halves'}")
    return joined("; ", parts)


def _with_scaling(base: str, rope: RoPE) -> str:
    if rope.scaling is None:
        return message("{n} without scaling", n=base)
    return message("{n} with {scaling}", n=base, scaling=scaling_text(rope.scaling))


def _yes(true: str, false: str) -> Callable[[Any, Any], str]:
    return lambda old, new: true if new else false


def _number(text: str) -> Callable[[Any, Any], str]:
    """A count: `text` has a place {n} for the number."""
    template = text + " instead of {m}"
    return lambda old, new: message(template, n=value_text(new), m=value_text(old)) if new else ""


def _head_norm(old: Spec | None, new: Spec | None) -> str:
    if isinstance(new, JointRMSNorm):
        return "RMSNorm over all query heads together, and over all key heads"
    if new is None:
        return "no norm on queries and keys"
    return message("{norm} on each query and key head", norm=new.title)


def _scale(old: float | None, new: float | None) -> str:
    if new == 1.0:
        return "scores are not scaled by the head's width"
    if new is None:
        return "scores are scaled by 1/√(head width)"
    return message("scores are {how}", how=factor_words(new))


def _residual_scale(old: float | None, new: float) -> str:
    how = "not scaled" if new == 1.0 else factor_words(new)
    return message("what each part adds to the residual stream is {how}", how=how)


def _activation(old: str, new: str) -> str:
    titles = [ACTIVATION_TITLES.get(name, name) for name in (old, new)]
    return message("{new} instead of {old} as activation", new=titles[1], old=titles[0])


FIELDS: dict[tuple[str, str], Callable[[Any, Any], str]] = {
    ("layer", "parallel"): _yes(
        "mixer and feed-forward are parallel: one residual sum takes both",
        "the feed-forward reads what the mixer's residual sum gives",
    ),
    ("layer", "residual_scale"): _residual_scale,
    ("mixer", "heads"): _number("{n} heads"),
    ("mixer", "kv_heads"): _number("{n} key/value heads"),
    ("mixer", "head_dim"): _number("heads of width {n}"),
    ("mixer", "window"): _window,
    ("mixer", "chunked"): _yes(
        "a token sees only its own chunk of the window's width", "windows end at the token that sees them"
    ),
    ("mixer", "rope"): _rope,
    ("mixer", "bias"): _yes("biases on queries, keys and values", "no biases on queries, keys and values"),
    ("mixer", "output_bias"): _yes("a bias on attention's output", "no bias on attention's output"),
    ("mixer", "query_norm"): _head_norm,
    ("mixer", "scale"): _scale,
    ("mixer", "query_scale"): _yes(
        "queries grow with the logarithm of their position", "queries are not scaled by position"
    ),
    ("cross", "bias"): _yes("biases in cross-attention", "no biases in cross-attention"),
    ("feedforward", "hidden"): _number("feed-forward {n} wide"),
    ("feedforward", "activation"): _activation,
    ("feedforward", "bias"): _yes("biases in the feed-forward", "no biases in the feed-forward"),
    ("feedforward", "shared_gate"): _yes("a gate on the shared expert", "no gate on the shared expert"),
    ("feedforward", "scales_inputs"): _yes(
        "the weights of the experts used multiply what they read",
        "the weights of the experts used multiply what they give",
    ),
    ("experts", "count"): _number("{n} experts"),
    ("experts", "hidden"): _number("experts {n} wide"),
    ("experts", "activation"): _activation,
    ("router", "top_k"): _number("a token uses {n} experts"),
    ("router", "normalised"): _yes(
        "the weights of the experts used sum to one", "the weights of the experts used need not sum to one"
    ),
}
UNTOLD = (
    ("mixer", "key_norm"),  # as that of the queries
    *(("cross", name) for name in ("scale", "heads", "head_dim", "output_bias")),  # as those of the mixer
    ("router", "experts"),  # as many as there are
    ("norm", "eps"),
    ("mixer", "eps"),
    ("mixer", "shares"),  # the titles of the layers that read them say so
    ("mixer", "source"),
)


LONE_NORMS: dict[str, Callable[..., str]] = {
    "query_norm": lambda _, new: (
        message("{norm} on queries", norm=new.title) if new else "no norm on queries"
    ),
    "key_norm": lambda _, new: message("{norm} on keys", norm=new.title) if new else "no norm on keys",
}
PARTS = {"mixer": "mixer", "feedforward": "feed-forward", "cross": "cross-attention"}


def changed_fields(before: Spec, after: Spec) -> dict[str, tuple[Any, Any]]:
    """The fields whose values differ, as (before, after); None where a spec lacks the field."""
    values = [{name: getattr(spec, name) for name in field_names(spec)} for spec in (before, after)]
    names = dict.fromkeys((*values[0], *values[1]))
    pairs = {name: (values[0].get(name), values[1].get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def is_known(spec: Spec) -> bool:
    """Whether a block belongs to the zoo's core, whose titles need no explanation."""
    return type(spec).__module__.startswith("zoo.")


def explanation(spec: Spec) -> str:
    """The first sentence of a plugin block's docstring, without references; "" where there is none."""
    text = " ".join((type(spec).__doc__ or "").split())
    if is_known(spec) or not text or text.startswith(f"{type(spec).__name__}("):
        return ""
    text = re.sub(r"\s*\([^()]*\b(?:19|20)\d\d\b[^()]*\)", "", text)
    sentence = re.split(r"[.](?:\s|$)", text, maxsplit=1)[0]
    title, colon, rest = sentence.partition(": ")
    template = rest if colon and title.lower() == spec.title.lower() else sentence
    names = re.findall(r"`(\w+)`", template)
    values = {name: value_text(getattr(spec, name, name)) for name in names}
    return message(re.sub(r"`(\w+)`", r"{\1}", template), **values) if values else template


def lowered(text: str) -> str:
    """A text with a small first letter, unless it begins a name or a formula."""
    word = text.partition(" ")[0]
    plain = re.fullmatch(r"[A-Z](?:[a-z]+(?:-[a-z]+)*)?[,:]?", word)
    return reworded(text, text[:1].lower() + text[1:]) if plain and (len(word) > 1 or word == "A") else text


def capital(text: str) -> str:
    """A text with a capital, unless it begins a name or a formula."""
    begins = text[1:2].islower() or text[1:2] == "-" or text[:2] == "a "
    return reworded(text, text[:1].upper() + text[1:]) if begins else text


def as_sentence(text: str) -> str:
    """A text as a sentence."""
    return reworded(text, f"{capital(text)}.")


def replaced(spec: Spec) -> str:
    """A block's title, with its explanation where it has one."""
    text = explanation(spec)
    if not text:
        return spec.title
    return message("{block} ({explanation})", block=spec.title, explanation=lowered(text))


def part_changes(
    before: Spec | None, after: Spec | None, place: str, part: str, sizes: bool
) -> Iterator[str]:
    """Sentences about a changed part of a layer; `place` names the layers: "each layer"."""
    word = PARTS.get(part, in_words(part.replace("_", " ")))
    if before is None and after is not None:
        yield message("{new} is added to {place}.", new=capital(replaced(after)), place=place)
    elif after is None and before is not None:
        yield f"No layer has {article(word)}." if place == "each layer" else _sentence(place, f"no {word}")
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
        yield _sentence(place, _instead(replaced(after), before.title))
        if explanation(after):  # it describes what is new
            changed = {name: pair for name, pair in changed.items() if name in vars(before)}
    elif renamed and sizes:
        old, new = (_with_heads(spec) for spec in (before, after))
        yield _sentence(place, _instead(new, old))
        changed = {name: pair for name, pair in changed.items() if name not in ("heads", "kv_heads")}
    if related:
        yield from field_changes(before, after, changed, place, word, sizes)


def _with_heads(spec: Spec) -> str:
    """Attention with its numbers of heads."""
    heads, groups = (vars(spec).get(name) for name in ("heads", "kv_heads"))
    if not heads:
        return str(spec.title)
    grouped = " and {m} key/value heads" if groups and groups != heads else ""
    return message("{attention} with {n} heads" + grouped, attention=spec.title, n=heads, m=groups)


def _instead(new: str, old: str) -> str:
    return message("{new} instead of {old}", new=new, old=old)


def field_changes(
    before: Spec, after: Spec, changed: dict[str, tuple[Any, Any]], place: str, word: str, sizes: bool
) -> Iterator[str]:
    """A sentence for each changed field: its own where `FIELDS` has one, else its name and values."""
    if not sizes:
        changed = {name: pair for name, pair in changed.items() if name not in SIZES}
    for name, (old, new) in changed.items():
        fields = (vars(spec) for spec in (before, after))
        as_many = name == "kv_heads" and all(one.get("heads") == one.get("kv_heads") for one in fields)
        apart = name in LONE_NORMS and (_normalises_one(before) or _normalises_one(after))
        if as_many or ((after.kind, name) in UNTOLD and not apart):
            continue
        if name == "rope" and not sizes and isinstance(old, RoPE) and isinstance(new, RoPE):
            old = old.change(theta=new.theta, scaling=new.scaling)
        if (phrase := LONE_NORMS[name] if apart else FIELDS.get((after.kind, name))) is not None:
            if text := phrase(old, new):
                yield _sentence(place, text)
        elif isinstance(old, Spec) and isinstance(new, Spec) and old.kind == new.kind:
            yield from _changes(old, new, place, f"{word}'s {field_word(name)}", sizes)
        elif isinstance(new, Spec) and old is None:
            text = message(f"{{new}} as the {word}'s {field_word(name)}", new=replaced(new))
            yield _sentence(place, text)
        elif name in vars(after):
            template = f"{word} {field_word(name)}: " + ("none" if new is None else "{new}")
            if old is not None or name in vars(before):
                template += " instead of " + ("none" if old is None else "{old}")
            yield _sentence(place, message(template, old=value_text(old), new=value_text(new)))


def _normalises_one(attention: Spec) -> bool:
    """Whether attention has a norm of its queries or of its keys, and not of both."""
    fields = vars(attention)
    return "key_norm" in fields and (fields.get("query_norm") is None) != (fields["key_norm"] is None)


def field_word(name: str) -> str:
    """A field's name as a sentence has it."""
    return "shared expert" if name == "shared" else name.replace("_", " ")


def _has_experts(spec: Spec) -> bool:
    return any(part.kind == "experts" for _, part in spec.walk())


def _feedforward(before: Spec, after: Spec, place: str) -> Iterator[str]:
    """Sentences about another kind of feed-forward, with the numbers of experts."""
    if not _has_experts(after):
        if _has_experts(before):
            template = "one feed-forward, {kind}, takes the place of the experts"
            yield _sentence(place, message(template, kind=replaced(after)))
        else:
            yield _sentence(place, _instead(replaced(after), before.title))
        return
    parts = {part.kind: part for _, part in after.walk()}
    count, used = getattr(parts["experts"], "count", 0), getattr(parts.get("router"), "top_k", None)
    text = message("{n} experts", n=count)
    if not is_known(parts["experts"]):
        kind = lowered(explanation(parts["experts"])) or parts["experts"].title
        text = message("{n} experts ({kind})", n=count, kind=kind)
    if used:
        text = message("{experts}, of which a token uses {n}", experts=text, n=used)
    if getattr(after, "shared", None) is not None:
        text = message("{experts}, and one shared expert that every token uses", experts=text)
        if getattr(after, "shared_gate", False):
            text = message("{experts}, times a gate", experts=text)
    if _has_experts(before):
        yield _sentence(place, text)
    elif place == "each layer":
        yield message("Each layer's feed-forward is replaced by {experts}.", experts=text)
    else:
        yield message("The feed-forward of {place} is replaced by {experts}.", place=place, experts=text)
    router = parts.get("router")
    if router is not None and not is_known(router) and explanation(router):
        yield message("The router: {text}.", text=lowered(explanation(router)))


def article(text: str) -> str:
    """A noun with its article: "a feed-forward"."""
    if text.endswith("attention"):
        return text
    return message("an {noun}" if text[:1].lower() in "aeiou" else "a {noun}", noun=text)


def _sentence(place: str, text: str) -> str:
    """A sentence that names its layers, unless it holds for all."""
    if not text:
        return ""
    if place == "each layer":
        return as_sentence(text)
    return message("In {place}: {rest}.", place=place, rest=lowered(text))
