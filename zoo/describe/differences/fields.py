"""What a changed field of the zoo's own specs means, in a sentence. Imports no mlx."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zoo.describe.facts.fact import factor_words, text_of
from zoo.describe.facts.structure import scaling_text
from zoo.recipe import JointRMSNorm, RoPE, Spec
from zoo.recipe.parts import ACTIVATION_TITLES

# Fields that are sizes: left out where a variant has its base's numbers.
SIZES = frozenset(
    (
        *(
            "heads",
            "kv_heads",
            "head_dim",
            "hidden",
            "vocab",
            "dim",
            "context",
            "count",
            "experts",
            "top_k",
            "eps",
        ),
        *("theta", "token_types", "module", "settings", "depth", "parameter_count"),
    )
)


def value_text(value: Any) -> str:
    """A field's value in a sentence."""
    if isinstance(value, Spec):
        return value.title
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return ", ".join(map(value_text, value))
    return text_of(value)


def _window(old: int | None, new: int | None) -> str:
    if new is None:
        return "attention has no window"
    return f"attention sees a window of {new:,} tokens" + (f" instead of {old:,}" if old else "")


def same_numbers(old: Any, new: Any) -> tuple[Any, Any]:
    """Rotary positions without the differences in base and scaling."""
    if isinstance(old, RoPE) and isinstance(new, RoPE):
        return old.change(theta=new.theta, scaling=new.scaling), new
    return old, new


def _rope(old: Any, new: Any) -> str:
    """Rotary positions with other numbers; of another kind, they are a difference of the stack."""
    if not isinstance(old, RoPE) or not isinstance(new, RoPE):
        return ""
    parts = []
    if (old.theta, old.scaling) != (new.theta, new.scaling):
        texts = [f"{rope.theta:,.12g}" for rope in (old, new)]
        if old.scaling != new.scaling:
            scalings = (
                "without scaling" if rope.scaling is None else f"with {scaling_text(rope.scaling)}"
                for rope in (old, new)
            )
            texts = [f"{text} {scaling}" for text, scaling in zip(texts, scalings, strict=True)]
        parts.append(f"rotary base {texts[1]} instead of {texts[0]}")
    if old.dims != new.dims:
        parts.append(
            "all of each head is rotated" if new.dims is None else f"{new.dims} of each head are rotated"
        )
    if old.interleaved != new.interleaved:
        parts.append(f"rotated dimensions are paired {'as neighbours' if new.interleaved else 'by halves'}")
    return "; ".join(parts)


def _yes(true: str, false: str) -> Callable[[Any, Any], str]:
    return lambda old, new: true if new else false


def _instead(text: str) -> Callable[[Any, Any], str]:
    """A count: `text` has a place for the number."""
    return lambda old, new: f"{text.format(value_text(new))} instead of {value_text(old)}" if new else ""


def _head_norm(old: Any, new: Any) -> str:
    if isinstance(new, JointRMSNorm):
        return "RMSNorm over all query heads together, and over all key heads"
    return "no norm on queries and keys" if new is None else f"{new.title} on each query and key head"


def _scale(old: Any, new: Any) -> str:
    if new == 1.0:
        return "scores are not scaled by the head's width"
    return "scores are scaled by 1/√(head width)" if new is None else f"scores are {factor_words(new)}"


def _residual_scale(old: float | None, new: float) -> str:
    how = "not scaled" if new == 1.0 else factor_words(new)
    return f"what each part adds to the residual stream is {how}"


def _activation(old: Any, new: Any) -> str:
    titles = [ACTIVATION_TITLES.get(name, name) for name in (old, new)]
    return f"{titles[1]} instead of {titles[0]} as activation"


FIELDS: dict[tuple[str, str], Callable[[Any, Any], str]] = {
    ("layer", "parallel"): _yes(
        "mixer and feed-forward are parallel: one residual sum takes both",
        "the feed-forward reads what the mixer's residual sum gives",
    ),
    ("layer", "residual_scale"): _residual_scale,
    ("mixer", "heads"): _instead("{} heads"),
    ("mixer", "kv_heads"): _instead("{} key/value heads"),
    ("mixer", "head_dim"): _instead("heads of width {}"),
    ("mixer", "window"): _window,
    ("mixer", "rope"): _rope,
    ("mixer", "bias"): _yes("biases on queries, keys and values", "no biases on queries, keys and values"),
    ("mixer", "output_bias"): _yes("a bias on attention's output", "no bias on attention's output"),
    ("mixer", "query_norm"): _head_norm,
    ("mixer", "key_norm"): lambda old, new: "",
    ("mixer", "scale"): _scale,
    ("cross", "scale"): lambda old, new: "",  # as that of the mixer
    ("cross", "heads"): lambda old, new: "",
    ("cross", "head_dim"): lambda old, new: "",
    ("cross", "bias"): _yes("biases in cross-attention", "no biases in cross-attention"),
    ("cross", "output_bias"): lambda old, new: "",
    ("feedforward", "hidden"): _instead("feed-forward {} wide"),
    ("feedforward", "activation"): _activation,
    ("feedforward", "bias"): _yes("biases in the feed-forward", "no biases in the feed-forward"),
    ("feedforward", "shared_gate"): _yes("a gate on the shared expert", "no gate on the shared expert"),
    ("experts", "count"): _instead("{} experts"),
    ("experts", "hidden"): _instead("experts {} wide"),
    ("experts", "activation"): _activation,
    ("router", "experts"): lambda old, new: "",  # as many as there are
    ("router", "top_k"): _instead("a token uses {} experts"),
    ("router", "normalised"): _yes(
        "the weights of the experts used sum to one", "the weights of the experts used need not sum to one"
    ),
    ("norm", "eps"): lambda old, new: "",
}
TOGETHER = {"query_norm": {"key_norm"}}
