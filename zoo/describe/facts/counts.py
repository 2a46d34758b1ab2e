"""Walks a recipe: its stacks by role, its specs with their widths; counts parameters and operations. Imports no mlx.

Counted as operations are matrix products, attention's scores and its sums of values, two operations for each
multiply-add, as `Spec.flops` counts them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from zoo.recipe import Model, Spec

DECODER, ENCODER = "decoder", "encoder"


def stacks(recipe: Model) -> dict[str, Model]:
    """The models with layers in a recipe: by "encoder" and "decoder"; none where the layers are not known.

    A bidirectional decoder counts as a decoder. A model of a third party whose parts are not named so is a decoder when it
    has layers.
    """
    parts: dict[str, Any] = dict(recipe.parts())
    if isinstance(parts.get("layers"), tuple):
        return {ENCODER if recipe.name == ENCODER else DECODER: recipe}
    towers = ((role, parts[role]) for role in (ENCODER, DECODER) if role in parts)
    return {role: stack for role, stack in towers if isinstance(dict(stack.parts()).get("layers"), tuple)}


def is_opaque(recipe: Model) -> bool:
    """Whether another library's code runs the recipe, so that only its sums are known."""
    return not stacks(recipe)


def with_widths(spec: Spec, dim: int, path: str = "") -> Iterator[tuple[str, Spec, int]]:
    """A spec and all specs below it, each with its path and its width."""
    yield path, spec, dim
    for field, part in spec.children():
        yield from with_widths(part, _width(spec, field, dim), f"{path}.{field}" if path else field)


def _width(spec: Spec, field: str, dim: int) -> int:
    """The width of a part at "mixer" or "layers.3"."""
    return spec.width(field.partition(".")[0], dim)


def memories(recipe: Model) -> Iterator[tuple[Spec, int]]:
    """The parts of the decoder's layers that have a cache (mixers, recurrent parts), each with its width."""
    decoder = stacks(recipe).get(DECODER)
    if decoder is None or decoder.causality == "full":
        return
    for layer in decoder.layers:
        yield from _remembering(layer, decoder.dim)


def _remembering(spec: Spec, dim: int) -> Iterator[tuple[Spec, int]]:
    for field, part in spec.children():
        width = _width(spec, field, dim)
        if part.remembers:
            yield part, width
        else:
            yield from _remembering(part, width)


PARTS = {
    "embedding": "embedding",
    "position": "positions",
    "mixer": "attention",
    "cross": "cross-attention",
    "feedforward": "feed-forward",
    "indexer": "indexers",
    "router": "routers",
    "experts": "experts",
    "norm": "norms",
    "layer": "residual sums",
    "residual": "residual sums",
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
    counts: Counter[str] = Counter()
    for _, spec, width in with_widths(recipe, recipe.dim):
        recurrent = spec.kind == "mixer" and spec.recurrent
        label = "recurrent mixers" if recurrent else PARTS.get(spec.kind, "other")
        counts[label] += spec.own_parameters(width)
    # Those of a spec that counts in a way of its own:
    counts["other"] += recipe.parameters(recipe.dim) - counts.total()
    order = [*PARTS.values(), "recurrent mixers", "other"]
    return {label: counts[label] for label in order if counts[label]}


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
