"""Recipe to model: each spec's parts are built first, then its module is given them by field name."""

from __future__ import annotations

from typing import Any, Protocol

from zoo.errors import RecipeError, ZooError
from zoo.recipe import Spec


class Modules(Protocol):
    """What knows the class that runs each spec: a `Registry`."""

    def module(self, spec: type) -> Any:
        """The class that runs a spec."""


def build(spec: Spec, dim: int, index: int = 0, *, registry: Modules, path: str = "") -> Any:
    """The module of a spec in width `dim`; `index` is its layer's number. RecipeError names the field's path."""
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


def assemble(recipe: Any, registry: Modules) -> Any:
    """The model of a whole recipe, its weights random and unevaluated; `registry` has the modules of its blocks."""
    return build(recipe, recipe.dim, registry=registry)
