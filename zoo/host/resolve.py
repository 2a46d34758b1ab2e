"""Finds the architecture of a checkpoint's config, or says why there is none, and reads recipes from files.

A folder may hold a recipe of its own: its `config.json` has the `model_type` "zoo-recipe" and the recipe itself under
`recipe`. The names of its tensors are the paths of its parameters. Imports no mlx.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from zoo.architecture import Architecture
from zoo.config import CONFIG_JSON, Config, Origin
from zoo.errors import ConfigError, PluginError, RecipeError, contained, did_you_mean, in_words
from zoo.files.reading import read_object
from zoo.host.plugins import Plugin, is_strict
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
            hint = registry.unloaded_hint() or did_you_mean(identifier, registry.blocks, most=2)
            raise RecipeError(f"no installed plugin has the block {identifier!r}{hint}") from None

    found = from_json(value, spec_of)
    if not isinstance(found, Model):
        raise RecipeError(
            f"block: {found.block()} is not a whole model that can be assembled from its recipe"
        )
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
    """The config.json of a folder that holds this recipe's model."""
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


# The key of a config.json under which a folder names the third party's plugin that it needs: "zoo-gptj 0.1".
WRITER = "zoo_plugin"
_DISTRIBUTION_AND_VERSION = re.compile(r"[\w.-]{1,80}( [\w.+!-]{1,40})?")


def resolve(registry: Registry, config: Mapping[str, Any], origin: Origin = CONFIG_JSON) -> Architecture:
    """The architecture of a checkpoint's config; ConfigError when no plugin knows it.

    A plugin's `zoo_resolve` comes before its `model_types`, and third parties' plugins before the zoo's own. A plugin that
    bridges to another library is asked last. Errors name the file of `origin`.
    """
    model_type = config.get("model_type")
    if model_type == RECIPE_TYPE:
        return recipe_architecture(config, registry, origin)
    typed = registry.model_types.claims(model_type) if isinstance(model_type, str) else []
    resolved = list(_resolved(registry, config))
    for first_party in (False, True):
        claims = [claim for claim in resolved if claim[0].first_party == first_party] or [
            claim for claim in typed if claim[0].first_party == first_party
        ]
        if claims:
            # The zoo's own that a third party takes this config from come after it, for the warning to name them.
            replaced = [] if first_party else [claim for claim in typed if claim[0].first_party]
            distinct = {id(a): (registry.plugin_of(a), a) for _, a in (*claims, *replaced)}
            found = registry.model_types.winner(list(distinct.values()), str(model_type))[1]
            if first_party:
                _warn_of_absent(registry, config, None, f"the zoo's own {found.name}")
            return found
    if not isinstance(model_type, str):
        raise ConfigError(f"{origin.of('model_type')} is missing; name one with `architecture`")
    unloaded = registry.unloaded_plugin(model_type)
    for _, architecture in _resolved(registry, config, bridges=True):
        _warn_of_absent(registry, config, unloaded, f"{architecture.name.partition('::')[0]}'s code")
        return architecture
    absent = _absent_plugin(registry, config, unloaded)
    why = absent or f"is of no architecture that the zoo has{registry.unloaded_hint()}"
    raise ConfigError(f"{origin.of('model_type')} {model_type!r} {why}")


def _warn_of_absent(
    registry: Registry, config: Mapping[str, Any], unloaded: Plugin | None, code: str
) -> None:
    """Warn that `code` takes the place of a plugin that the config asks for."""
    if absent := _absent_plugin(registry, config, unloaded):
        line = f"model_type {config.get('model_type')!r} {absent}; {code} runs it instead"
        warnings.warn(line, stacklevel=4)


def _absent_plugin(registry: Registry, config: Mapping[str, Any], unloaded: Plugin | None) -> str:
    """Which plugin a config asks for that is not loaded, or not installed; "" where there is none."""
    writer = config.get(WRITER)
    if isinstance(writer, str) and _DISTRIBUTION_AND_VERSION.fullmatch(writer):
        distribution = writer.partition(" ")[0]
        if all(distribution != (plugin.distribution or plugin.name) for plugin in registry.plugins):
            return f"is of the plugin {writer}, by which this folder was written and which is not installed"
        unloaded = unloaded or registry.unloaded_plugin(distribution)
    return f"is of the {unloaded.unloaded_label}" if unloaded else ""


def _resolved(
    registry: Registry, config: Mapping[str, Any], bridges: bool = False
) -> Iterator[tuple[Plugin, Architecture]]:
    """What the `zoo_resolve` of each plugin answers, of the plugins that bridge to another library or of the others.

    One that raises is skipped with a warning; when strict, it is a PluginError.
    """
    for plugin in registry.plugins:
        own = plugin.records.get("zoo_architectures", ())
        if any(architecture.bridged for architecture in own) != bridges:
            continue
        for function in plugin.records.get("zoo_resolve", ()):
            try:
                with contained():
                    name = function(config=config)
                if name:
                    named = next((a for a in own if a.name == name), None)
                    yield plugin, named or registry.architecture(name)
            except Exception as error:
                line = f"plugin {plugin.name}: zoo_resolve: {in_words(error)}"
                if is_strict():
                    raise PluginError(line) from error
                warnings.warn(f"{line}; it is skipped", stacklevel=2)
