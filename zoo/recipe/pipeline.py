"""Division of a model in stages: each rank has some of the layers, one after the other. Imports no mlx."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import Any

from zoo.errors import RecipeError, SourceError
from zoo.frozen import frozen
from zoo.recipe.division import Division, Share, Source, joined
from zoo.recipe.models import Decoder, Encoder, EncoderDecoder, Model
from zoo.recipe.spec import Spec
from zoo.recipe.tensor_parallel import divided

WAYS = ("auto", "tensor", "experts", "pipeline")


@frozen()
class Elsewhere(Spec):
    """The place of a layer that another rank has."""

    kind, name = "layer", "elsewhere"


def check_way(way: str) -> None:
    """SourceError for what is none of the `WAYS`."""
    if way not in WAYS:
        raise SourceError(f"`parallel` must be one of {', '.join(WAYS)}, got {way!r:.60}")


def division_of(recipe: Model, way: str, share: Share) -> Division:
    """What a rank has of a model that is divided in one of the `WAYS`. RecipeError where it cannot be.

    "auto": by tensors where the model divides so, else in stages. "experts": by tensors, but each expert of a mixture is whole
    on one rank.
    """
    if way == "pipeline":
        return staged(recipe, share)
    if way == "experts":
        return _by_experts(recipe, share)
    try:
        return divided(recipe, recipe.dim, share)
    except RecipeError:
        if way == "tensor":
            raise
        return staged(recipe, share)


def _by_experts(recipe: Model, share: Share) -> Division:
    """Division by tensors with whole experts. RecipeError for a model without a mixture that divides so."""
    division = divided(recipe, recipe.dim, replace(share, whole_experts=True))
    if all(
        getattr(spec, "first", None) is None for _, spec in division.spec.walk() if spec.kind == "experts"
    ):
        raise RecipeError(
            "`parallel`: the model has no experts that are divided among ranks; use `parallel` tensor"
        )
    return division


def staged(recipe: Model, share: Share) -> Division:
    """What a rank has of a model whose layers are divided in stages. Embedding and head are divided by their rows.

    A stage's share of the parameters is that of its rank's memory. RecipeError where there are fewer layers than ranks, or
    where a layer takes a value that a layer of another rank gives.
    """
    if isinstance(recipe, EncoderDecoder):
        parts = {"encoder": recipe.encoder, "decoder": recipe.decoder}
        stages = {name: _tower(part, share, name).below(name) for name, part in parts.items()}
        return joined(recipe.change(**{name: stage.spec for name, stage in stages.items()}), *stages.values())
    if isinstance(recipe, Decoder | Encoder):
        return _tower(recipe, share, "")
    raise RecipeError(f"`parallel`: {recipe.block()} has no layers that could be divided among ranks")


def _tower(recipe: Any, share: Share, path: str) -> Division:
    """What a rank has of a decoder or an encoder."""
    layers, dim, where = recipe.layers, recipe.dim, f"{path}.layers" if path else "layers"
    ends = stage_ends([layer.parameters(dim) for layer in layers], share, where)
    first, last = ([0, *ends][share.rank], ends[share.rank])
    kept = [layer if first <= index < last else Elsewhere() for index, layer in enumerate(layers)]
    widened = any(layer.widens for layer in layers[:first])
    division = Division(
        recipe.change(layers=tuple(kept)),
        absent=tuple(f"layers.{index}" for index in range(len(layers)) if not first <= index < last),
        receives={} if first == 0 else {f"layers.{first}": Source(share.rank - 1, widened)},
        sends={} if last == len(layers) else {f"layers.{last - 1}": share.rank + 1},
        broadcasts={f"layers.{len(layers) - 1}": share.ranks - 1},
    )
    ends_of = {
        name: divided(part, dim, share) for name, part in recipe.parts() if name in ("embedding", "head")
    }
    spec = division.spec.change(**{name: end.spec for name, end in ends_of.items()})
    return joined(spec, division, *(end.below(name) for name, end in ends_of.items()))


def stage_ends(sizes: list[int], share: Share, name: str) -> list[int]:
    """For each rank the layer after its last, so that its share of all `sizes` is nearest that of its memory.

    RecipeError, naming `name`, where a rank would have none.

    >>> stage_ends([1] * 12, Share(0, 2), "layers")
    [6, 12]
    >>> stage_ends([1] * 12, Share(0, 2, memory=(64, 32)), "layers")
    [8, 12]
    """
    count, ranks = len(sizes), share.ranks
    if count < ranks:
        raise RecipeError(f"{name}: {count} cannot be divided among {ranks} ranks")
    memory = share.memory or (1,) * ranks
    before = list(accumulate(sizes, initial=0))
    ends = [0]
    for rank, held in enumerate(accumulate(memory[:-1])):
        wanted = before[-1] * held / sum(memory)
        possible = range(ends[-1] + 1, count - (ranks - rank - 1) + 1)
        ends.append(min(possible, key=lambda end: abs(before[end] - wanted)))
    return [*ends[1:], count]
