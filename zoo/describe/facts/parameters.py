"""How many parameters each kind of part has. Imports no mlx."""

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
    found["other"] += (
        recipe.parameters(recipe.dim) - found.total()
    )  # of a spec that counts in a way of its own
    order = [*PARTS.values(), "recurrent mixers", "other"]
    return {label: found[label] for label in order if found[label]}
