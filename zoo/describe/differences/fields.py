"""Sentences about changed fields of the zoo's own specs. Imports no mlx."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zoo.describe.facts.fact import factor_words, text_of
from zoo.describe.facts.structure import scaling_text
from zoo.describe.language import joined, message
from zoo.recipe import JointRMSNorm, RoPE, Spec
from zoo.recipe.parts import ACTIVATION_TITLES

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


def same_numbers(old: object, new: object) -> tuple[object, object]:
    """The pair with the old base and scaling replaced by the new ones."""
    if isinstance(old, RoPE) and isinstance(new, RoPE):
        return old.change(theta=new.theta, scaling=new.scaling), new
    return old, new


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


def _instead(text: str) -> Callable[[Any, Any], str]:
    """A count: `text` has a place {n} for the number."""
    template = text + " instead of {m}"
    return lambda old, new: message(template, n=value_text(new), m=value_text(old)) if new else ""


def _head_norm(old: Spec | None, new: Spec | None) -> str:
    if isinstance(new, JointRMSNorm):
        return "RMSNorm over all query heads together, and over all key heads"
    return (
        "no norm on queries and keys"
        if new is None
        else message("{norm} on each query and key head", norm=new.title)
    )


def _scale(old: float | None, new: float | None) -> str:
    if new == 1.0:
        return "scores are not scaled by the head's width"
    return (
        "scores are scaled by 1/√(head width)"
        if new is None
        else message("scores are {how}", how=factor_words(new))
    )


def _residual_scale(old: float | None, new: float) -> str:
    how = "not scaled" if new == 1.0 else factor_words(new)
    return message("what each part adds to the residual stream is {how}", how=how)


def _activation(old: str, new: str) -> str:
    titles = [ACTIVATION_TITLES.get(name, name) for name in (old, new)]
    return message("{new} instead of {old} as activation", new=titles[1], old=titles[0])


def _untold(old: object, new: object) -> str:
    return ""


FIELDS: dict[tuple[str, str], Callable[[Any, Any], str]] = {
    ("layer", "parallel"): _yes(
        "mixer and feed-forward are parallel: one residual sum takes both",
        "the feed-forward reads what the mixer's residual sum gives",
    ),
    ("layer", "residual_scale"): _residual_scale,
    ("mixer", "heads"): _instead("{n} heads"),
    ("mixer", "kv_heads"): _instead("{n} key/value heads"),
    ("mixer", "head_dim"): _instead("heads of width {n}"),
    ("mixer", "window"): _window,
    ("mixer", "rope"): _rope,
    ("mixer", "bias"): _yes("biases on queries, keys and values", "no biases on queries, keys and values"),
    ("mixer", "output_bias"): _yes("a bias on attention's output", "no bias on attention's output"),
    ("mixer", "query_norm"): _head_norm,
    ("mixer", "key_norm"): _untold,
    ("mixer", "scale"): _scale,
    ("cross", "scale"): _untold,  # as that of the mixer
    ("cross", "heads"): _untold,
    ("cross", "head_dim"): _untold,
    ("cross", "bias"): _yes("biases in cross-attention", "no biases in cross-attention"),
    ("cross", "output_bias"): _untold,
    ("feedforward", "hidden"): _instead("feed-forward {n} wide"),
    ("feedforward", "activation"): _activation,
    ("feedforward", "bias"): _yes("biases in the feed-forward", "no biases in the feed-forward"),
    ("feedforward", "shared_gate"): _yes("a gate on the shared expert", "no gate on the shared expert"),
    ("experts", "count"): _instead("{n} experts"),
    ("experts", "hidden"): _instead("experts {n} wide"),
    ("experts", "activation"): _activation,
    ("router", "experts"): _untold,  # as many as there are
    ("router", "top_k"): _instead("a token uses {n} experts"),
    ("router", "normalised"): _yes(
        "the weights of the experts used sum to one", "the weights of the experts used need not sum to one"
    ),
    ("norm", "eps"): _untold,
}
TOGETHER = {"query_norm": {"key_norm"}}
