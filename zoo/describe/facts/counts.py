"""Counts the parameters of each kind of part, and the floating-point operations of a token. Imports no mlx.

Counted as operations are matrix products, attention's scores and its sums of values, two operations for each multiply-add, as
`Spec.flops` counts them.
"""

from __future__ import annotations

from collections import Counter

from zoo.describe.facts.stacks import is_opaque, with_widths
from zoo.recipe import Model

PARTS = {
    "embedding": "embedding",
    "position": "positions",
    "mixer": "attention",
    "cross": "cross-attention",
    "feedforward": "feed-forward",
    "router": "routers",
    "experts": "experts",
    "norm": "norms",
    "head": "head",
}


def has_idle_experts(recipe: Model) -> bool:
    """Whether a token uses only a part of some feed-forward, as in a mixture of experts."""
    return any(
        spec.kind == "feedforward" and spec.active_parameters(width) < spec.parameters(width)
        for _, spec, width in with_widths(recipe, recipe.dim)
    )


def by_part(recipe: Model) -> dict[str, int]:
    """The parameters of each kind of part, by its label; their sum is the recipe's. {} where parts are not known."""
    if is_opaque(recipe):
        return {}
    found: Counter[str] = Counter()
    for _, spec, width in with_widths(recipe, recipe.dim):
        recurrent = spec.kind == "mixer" and spec.recurrent
        label = "recurrent mixers" if recurrent else PARTS.get(spec.kind, "other")
        found[label] += spec.own_parameters(width)
    # Those of a spec that counts in a way of its own:
    found["other"] += recipe.parameters(recipe.dim) - found.total()
    order = [*PARTS.values(), "recurrent mixers", "other"]
    return {label: found[label] for label in order if found[label]}


def decode_flops(recipe: Model, context: int) -> int | None:
    """Of one new token that sees `context` tokens, itself included; None where no text is written token by token.

    An encoder-decoder's new token sees `context` tokens of the source, too.
    """
    if is_opaque(recipe) or recipe.task not in ("generate", "translate"):
        return None
    return recipe.flops(recipe.dim, context)


def prefill_flops(recipe: Model, context: int) -> int | None:
    """Of one token on average while a text of `context` tokens is read at once; None where it is not known.

    Where no token sees later ones, the n-th sees n tokens. A text that is to be continued needs the logits of its
    last token alone. Of an encoder-decoder it is a token of the source.
    """
    if is_opaque(recipe):
        return None
    if recipe.task != "generate":
        return recipe.flops(recipe.dim, context, True)
    head = recipe.head.flops(recipe.dim, context, True)
    sees_all = recipe.causality != "causal"
    total = context * recipe.flops(recipe.dim, context, True) if sees_all else _sum(recipe, context)
    return round((total - (context - 1) * head) / context)


def _sum(recipe: Model, context: int) -> int:
    """Σ over n = 1 … context of a token that sees n: linear in n between two windows' widths."""
    widths = {spec.attention_window for _, spec, _ in with_widths(recipe, recipe.dim)}
    borders = sorted({width for width in widths if width and width < context} | {context})
    total, first = 0, 1
    for last in borders:
        ends = recipe.flops(recipe.dim, first, True) + recipe.flops(recipe.dim, last, True)
        total += (last - first + 1) * ends // 2
        first = last + 1
    return total
