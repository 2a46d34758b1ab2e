"""Tensor parallelism: every part of a model is divided among the ranks, as its spec says. Imports no mlx.

A spec says how its part is divided by a method `divided(dim, share)`, which returns a `Division`, or None for a part that
is divided where its own parts are, or else whole on every rank. The method holds for the class that defines it. A subclass,
whose module may have parameters of its own, says that it is divided alike by `divided = Attention.divided`; without that its
part stays whole, which is correct, though no smaller.

Ranks take turns with the larger shares: what rank 0 has of the first layer, rank 1 may have of the second.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from zoo.errors import RecipeError
from zoo.recipe.division import INSTEAD, Division, Share, joined
from zoo.recipe.spec import Spec

Key = tuple[int, int, int]  # of a part's division: the identity of its spec, its width, and the rank


def divided(spec: Spec, dim: int, share: Share, path: str = "") -> Division:
    """What a rank has of a part in width `dim`, and of all below it. RecipeError names the field that cannot be divided.

    `path` is that of the part.

    >>> from zoo.recipe import GatedMLP
    >>> half = divided(GatedMLP(hidden=512), 128, Share(rank=1, ranks=2))
    >>> half.spec.hidden, half.cuts["down.weight"], half.sums
    (256, Cut(axis=-1, ranges=((256, 512),)), ('',))
    """
    return _divided(spec, dim, share, path, {}).below(path)


def _divided(spec: Spec, dim: int, share: Share, path: str, known: dict[Key, Division]) -> Division:
    """The division of a part. Its names are relative to the part. `known` caches divisions."""
    key = id(spec), dim, share.rank
    if key not in known:
        known[key] = _declared(spec, dim, share, path) or _of_parts(spec, dim, share, path, known)
    return known[key]


def _declared(spec: Spec, dim: int, share: Share, path: str) -> Division | None:
    """What the spec's own class says, None where it says nothing."""
    declared = vars(type(spec)).get("divided")
    try:
        return None if declared is None else declared(spec, dim, share)
    except RecipeError as error:
        raise RecipeError(f"{path}.{error}" if path else str(error)) from None


def _of_parts(spec: Spec, dim: int, share: Share, path: str, known: dict[Key, Division]) -> Division:
    """A part that is divided where its parts are."""
    found: dict[str, Division] = {}
    by_heads = {field.name for field in fields(spec) if field.metadata.get("by_heads")}
    turns = _turns(spec, dim, share, path, known)
    for below, part in sorted(spec.children(), key=lambda child: child[0] in by_heads):  # these last
        width = spec.width(below.partition(".")[0], dim)
        where = f"{path}.{below}" if path else below
        if below in by_heads:
            found[below] = _by_heads(part, width, share, where, spec, list(found.values()))
        else:
            own = replace(share, rank=turns.get(below, share.rank))
            found[below] = _divided(part, width, own, where, known).below(below)
    division = joined(spec, *found.values())
    changes: dict[str, Any] = {}
    for name, value in spec.parts() if division.cuts else ():
        if isinstance(value, tuple):
            changes[name] = tuple(found[f"{name}.{index}"].spec for index in range(len(value)))
        else:
            changes[name] = found[name].spec
    return replace(division, spec=spec.change(**changes) if changes else spec)


def _turns(spec: Spec, dim: int, share: Share, path: str, known: dict[Key, Division]) -> dict[str, int]:
    """Which share of each layer this rank has: the number of the share, by the layer's path below `spec`.

    Share 0 is that of rank 0, and so on, where the layer divides evenly. Other shares are rotated, so that all ranks have about
    equally many parameters of the layers up to this one. Nothing is rotated in a stack whose layers share something that is
    divided by heads: a value that one layer gives to another, or scores that are added in every layer.
    """
    layers = {below: part for below, part in spec.children() if part.kind == "layer" and "." in below}
    shared = any(layer.takes for layer in layers.values()) or any(
        field.metadata.get("by_heads") and getattr(spec, field.name) is not None for field in fields(spec)
    )
    if shared or share.ranks == 1:
        return {}
    totals, turns = [0] * share.ranks, {}
    known_sizes: list[tuple[Spec, list[int]]] = []
    for below, layer in layers.items():
        width, where = spec.width(below.partition(".")[0], dim), f"{path}.{below}" if path else below
        sizes = next((sizes for other, sizes in known_sizes if other == layer), [])
        if not sizes:
            every = (replace(share, rank=rank) for rank in range(share.ranks))
            parts = [_divided(layer, width, one, where, known).spec for one in every]
            sizes = [part.parameters(width) for part in parts]
            known_sizes.append((layer, sizes))
        shifted = [
            [total + size for total, size in zip(totals, sizes[shift:] + sizes[:shift], strict=True)]
            for shift in range(share.ranks)
        ]
        totals = min(shifted, key=lambda totals: sorted(totals, reverse=True))
        turns[below] = (share.rank + shifted.index(totals)) % share.ranks
    return turns


def _by_heads(
    part: Spec, width: int, share: Share, where: str, whole: Spec, others: list[Division]
) -> Division:
    """What a rank has of a part that adds to the scores of all heads of the mixers in `whole`: as these are divided."""
    heads = {path: own for division in others for path, own in division.heads.items()}
    found = {heads.get(path) for path, mixer in whole.walk() if mixer.kind == "mixer"}
    if len(found) > 1:
        raise RecipeError(
            f"{where}: the heads of the mixers that it belongs to are not divided alike; {INSTEAD}"
        )
    share = replace(share, heads=found.pop() if found else None)
    name = where.rpartition(".")[2]
    division = _divided(part, width, share, where, {}).below(name)
    if share.heads is not None and not division.cuts:
        raise RecipeError(f"{where}: {part.block()} does not say how it is divided by heads; {INSTEAD}")
    return division
