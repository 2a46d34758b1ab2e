"""Tensor parallelism: every part of a model is divided among the ranks, as its spec says. Imports no mlx.

A spec says how its part is divided by a method `divided(dim, share)`, which returns a `Division`, or None for a part that
is divided where its own parts are, or else whole on every rank. The method holds for the class that defines it. A subclass,
whose module may have parameters of its own, says that it is divided alike by `divided = Attention.divided`; without that its
part stays whole, which is correct, though no smaller.

A part that says how it is divided is refused where the ranks would not have equally much of it. Only the rows of the
vocabulary may be fewer on the last ranks.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from zoo.errors import RecipeError
from zoo.recipe.division import INSTEAD, Division, Share, inputs, joined, outputs
from zoo.recipe.spec import Spec

Key = tuple[int, int]  # of a part's division: the identity of its spec, and its width


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
    key = id(spec), dim
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
    for below, part in sorted(spec.children(), key=lambda child: child[0] in by_heads):  # these last
        width = spec.width(below.partition(".")[0], dim)
        where = f"{path}.{below}" if path else below
        if below in by_heads:
            found[below] = _by_heads(part, width, share, where, spec, list(found.values()))
        else:
            found[below] = _divided(part, width, share, where, known).below(below)
    division = joined(spec, *found.values())
    changes: dict[str, Any] = {}
    for name, value in spec.parts() if division.cuts else ():
        if isinstance(value, tuple):
            changes[name] = tuple(found[f"{name}.{index}"].spec for index in range(len(value)))
        else:
            changes[name] = found[name].spec
    return replace(division, spec=spec.change(**changes) if changes else spec)


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


def divide_heads(spec: Any, dim: int, share: Share) -> Division:
    """What a rank has of self- or cross-attention: as many heads as other ranks, with the key/value heads that these read.

    With more ranks than key/value heads, several ranks have the same one. A norm over all heads is divided with them.
    """
    groups, width = spec.kv_heads or spec.heads, spec.head_width(dim)
    heads = share.inputs("heads", spec.heads, width)
    if share.ranks % groups:
        kv_heads = share.of("kv_heads", groups)
    else:
        first = heads[0] * groups // spec.heads
        kv_heads = first, first + 1
    queries, keys = ((first * width, last * width) for first, last in (heads, kv_heads))
    division = Division(
        spec.change(heads=heads[1] - heads[0], kv_heads=kv_heads[1] - kv_heads[0], head_dim=width),
        outputs("query", queries) | outputs("key", keys) | outputs("value", keys) | inputs("output", queries),
        once=("output.bias",),
        sums=("",),
        heads={"": heads},
    )
    for name, own_heads in (("query_norm", heads), ("key_norm", kv_heads)):
        norm = getattr(spec, name, None)
        part = norm and divided(norm, width, replace(share, heads=own_heads), name)
        if part and part.cuts:
            changed = division.spec.change(**{name: part.spec})
            division = replace(division, spec=changed, cuts={**division.cuts, **part.cuts})
    return division
