"""Recipe to model: each spec's parts are built first, then its module is given them by field name."""

from __future__ import annotations

from typing import Any

from zoo.errors import RecipeError, ZooError
from zoo.host.registry import Registry, registry
from zoo.recipe import Spec


def build(spec: Spec, dim: int, index: int = 0, known: Registry | None = None, path: str = "") -> Any:
    """The module of a spec in width `dim`; `index` is its layer's number. RecipeError names the field's path."""
    known = known or registry()
    parts: dict[str, Any] = {}
    for name, value in spec.parts():
        width = spec.width(name, dim)
        below = f"{path}.{name}" if path else name
        if isinstance(value, tuple):
            parts[name] = [build(part, width, i, known, f"{below}.{i}") for i, part in enumerate(value)]
        else:
            parts[name] = build(value, width, index, known, below)
    module = known.module(type(spec))
    try:
        return module(spec, dim=dim, index=index, **parts)
    except (AttributeError, TypeError, ValueError, ZooError) as error:
        raise RecipeError(f"{path or spec.block()}: {error}") from error


def assemble(recipe: Any, known: Registry | None = None) -> Any:
    """The model of a whole recipe, its weights random and unevaluated."""
    return build(recipe, recipe.dim, known=known)
