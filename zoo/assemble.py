"""Recipe to model: each spec's parts are built first, then its module is given them by field name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zoo import runtime
from zoo.errors import RecipeError, ZooError
from zoo.recipe import Model as Recipe
from zoo.recipe import Spec

if TYPE_CHECKING:
    from zoo.blocks.model import Model

TRAINED = 4  # weights, their gradients and the optimizer's two moments
FLOAT, GB = 4, 1e9  # bytes


def build(spec: Spec, dim: int, index: int = 0, *, registry: Any, path: str = "") -> Any:
    """The module of a spec in width `dim`; `index` is its layer's number. RecipeError names the field's path.

    `registry` gives the class that runs a spec, `registry.module(type(spec))`.
    """
    try:
        spec.check_width(dim)
    except RecipeError as error:
        raise RecipeError(f"{path or spec.block()}.{error}") from None
    parts: dict[str, Any] = {}
    for name, value in spec.parts():
        width = spec.width(name, dim)
        below = f"{path}.{name}" if path else name
        if isinstance(value, tuple):
            parts[name] = [
                build(part, width, i, registry=registry, path=f"{below}.{i}") for i, part in enumerate(value)
            ]
        else:
            parts[name] = build(value, width, index, registry=registry, path=below)
    module = registry.module(type(spec))
    try:
        return module(spec, dim=dim, index=index, **parts)
    except (AttributeError, TypeError, ValueError, ZooError) as error:
        raise RecipeError(f"{path or spec.block()}: {error}") from error


def assemble(recipe: Recipe, registry: Any, *, copies: int = 0) -> Model:
    """The model of a whole recipe, its weights random and unevaluated; `registry` has the modules of its blocks.

    `copies` says how many times as many numbers, in float32, the caller will hold: 1 to run the random weights,
    `TRAINED` to train them. RecipeError, with the sum, where this machine has not so much memory.
    """
    from zoo.blocks.model import Model

    check_memory(recipe, copies)
    model = build(recipe, recipe.dim, registry=registry)
    if not isinstance(model, Model):
        raise RecipeError(
            f"{recipe.block()}: {type(model).__name__} is no subclass of zoo.blocks.model.Model"
        )
    return model


def check_memory(recipe: Recipe, copies: int, tokens: int = 0) -> None:
    """RecipeError, with the sum, where this machine's memory is exceeded by `copies` of a recipe's parameters in float32.

    `tokens` are those of a training step, of each of which every layer's output is kept for the gradients.
    """
    count, room = recipe.parameters(recipe.dim), runtime.usable_memory()
    weights, outputs = copies * count * FLOAT, tokens and tokens * len(recipe.layers) * recipe.dim * FLOAT
    if room is not None and weights + outputs > room:
        step = f", the layers' outputs for {tokens:,} tokens a step {outputs / GB:.1f} GB" if tokens else ""
        raise RecipeError(
            f"the model does not fit: {copies} × {count:,} parameters in float32 are {weights / GB:.1f} GB{step}, "
            f"this machine has {room / GB:.1f} GB"
        )
