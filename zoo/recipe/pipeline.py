"""Which way a model is divided among ranks: each part by tensors, or its layers in stages. Imports no mlx."""

from __future__ import annotations

from zoo.errors import RecipeError
from zoo.recipe.division import Division, Share, divided
from zoo.recipe.models import Model

WAYS = ("auto", "tensor", "pipeline")


def division_of(recipe: Model, way: str, share: Share) -> Division:
    """What a rank has of a model that is divided in one of the `WAYS`. RecipeError where it cannot be."""
    if way not in WAYS:
        raise RecipeError(f"`parallel` {way!r}: not one of {', '.join(WAYS)}")
    return divided(recipe, recipe.dim, share)
