"""Finds the architecture of a checkpoint's config, or says why there is none."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from zoo.architecture import Architecture
from zoo.config import CONFIG_JSON, Origin
from zoo.errors import ConfigError, PluginError, contained, in_words
from zoo.host.discovery import Plugin, is_strict
from zoo.host.recipes import recipe_architecture
from zoo.host.registry import RECIPE_TYPE, Registry

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
                failed = registry.unloaded_plugin(str(model_type), of_record=True, failed=True)
                _warn_of_absent(registry, config, failed, f"the zoo's own {found.name}")
            return found
    if not isinstance(model_type, str):
        raise ConfigError(f"{origin.of('model_type')} is missing; name one with `architecture`")
    unloaded = registry.unloaded_plugin(model_type)
    for _, architecture in _resolved(registry, config, bridges=True):
        _warn_of_absent(registry, config, unloaded, f"{architecture.name.partition('::')[0]}'s code")
        return architecture
    why = _absent_plugin(registry, config, unloaded) or "is of no architecture that the zoo has"
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
    if unloaded is not None:
        return f"is named by the {unloaded.unloaded_label}"
    writer = config.get(WRITER)
    installed = {plugin.distribution or plugin.name for plugin in registry.plugins}
    if (
        isinstance(writer, str)
        and _DISTRIBUTION_AND_VERSION.fullmatch(writer)
        and writer.partition(" ")[0] not in installed
    ):
        return f"is of the plugin {writer}, by which this folder was written and which is not installed"
    return ""


def _resolved(
    registry: Registry, config: Mapping[str, Any], bridges: bool = False
) -> Iterator[tuple[Plugin, Architecture]]:
    """What the `zoo_resolve` of each plugin answers, of the plugins that bridge to another library or of the others.

    One that raises is skipped with a warning; when strict, it is a PluginError.
    """
    for plugin in (plugin for plugin in registry.plugins if plugin.bridges == bridges):
        for function in plugin.records.get("zoo_resolve", ()):
            try:
                with contained():
                    name = function(config=config)
                if name:
                    own = [a for a in plugin.records.get("zoo_architectures", ()) if a.name == name]
                    yield plugin, own[0] if own else registry.architecture(name)
            except Exception as error:
                line = f"plugin {plugin.name}: zoo_resolve: {in_words(error)}"
                if is_strict():
                    raise PluginError(line) from error
                warnings.warn(f"{line}; it is skipped", stacklevel=2)
