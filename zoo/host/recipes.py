"""Recipes as files: read through a registry, and as the architecture of a folder that holds one. Imports no mlx.

The `config.json` of such a folder has the `model_type` "zoo-recipe" and the recipe itself under `recipe`. The names of
its tensors are the paths of its parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.architecture import Architecture
from zoo.config import CONFIG_JSON, Config, Origin
from zoo.errors import ConfigError, PluginError, RecipeError, did_you_mean
from zoo.files.reading import read_object
from zoo.host.registry import RECIPE_TYPE, Registry
from zoo.recipe import Model, Spec, from_json
from zoo.weights import Rename


def recipe_from_json(value: object, registry: Registry) -> Model:
    """The model that a JSON object describes in the blocks of `registry`.

    RecipeError that starts with the path of the field, as of `zoo.recipe.from_json`.
    """

    def spec_of(identifier: str) -> type[Spec]:
        try:
            return registry.block(identifier).spec
        except PluginError as error:
            if identifier in registry.blocks or "::" in identifier:  # several plugins claim it
                raise RecipeError(str(error)) from None
            if unloaded := registry.unloaded_block(identifier):
                line = f"{identifier!r} is a block of the {unloaded.unloaded_label}"
                raise RecipeError(line) from None
            hint = did_you_mean(identifier, registry.blocks, most=2)
            raise RecipeError(f"no installed plugin has the block {identifier!r}{hint}") from None

    found = from_json(value, spec_of)
    if not isinstance(found, Model):
        raise RecipeError(f"block: {found.block()} is no whole model that can be assembled from its recipe")
    return found


def read_recipe(path: Path, registry: Registry) -> Model:
    """The recipe in a JSON file; RecipeError that names the file and the path of the field."""
    real = path.resolve()  # a person's own file may be a link
    value = read_object(real.parent, real.name, RecipeError, required=True)
    try:
        return recipe_from_json(value, registry)
    except RecipeError as error:
        raise RecipeError(f"{path}: {error}") from None


def recipe_config(recipe: Model) -> dict[str, Any]:
    """What the config.json of a folder says whose model is this recipe's."""
    return {"model_type": RECIPE_TYPE, "recipe": recipe.to_json()}


def recipe_architecture(
    config: Mapping[str, Any], registry: Registry, origin: Origin = CONFIG_JSON
) -> Architecture:
    """The architecture of a config that holds its recipe: task and causality are the recipe's own.

    ConfigError that names the file of `origin` and the field.
    """

    def read(config: Config) -> Model:
        try:
            return recipe_from_json(config["recipe"], registry)
        except RecipeError as error:
            raise ConfigError(f"{config.origin.of('recipe')}.{error}") from None

    recipe = read(Config(config, origin=origin))
    return Architecture(
        name=RECIPE_TYPE,
        summary="a recipe of its own, in the folder's config.json",
        recipe=read,
        weights=(Rename("*", "*"),),
        task=recipe.task,
        causality=recipe.causality,
        model_types=(RECIPE_TYPE,),
    )
