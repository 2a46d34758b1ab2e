"""What the plugins gave: architectures, blocks and commands by name, and which architecture a config is of."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from zoo.architecture import Architecture, Block, Command, Strategy, import_target
from zoo.builtin import core_blocks, core_strategies
from zoo.errors import ConfigError, PluginError, SourceError
from zoo.plugins import Plugin, load_plugins, resolvers


class Registry:
    """The records of a list of plugins.

    A name that two third parties claim belongs to neither: it must be asked for as "distribution::name". One
    that a third party and the zoo both have is the third party's, and using it warns once.
    """

    def __init__(self, plugins: Iterable[Plugin]) -> None:
        self.plugins = list(plugins)
        self._claims: dict[str, list[tuple[Plugin, Architecture]]] = {}
        self._types: dict[str, list[tuple[Plugin, Architecture]]] = {}
        self._blocks: dict[str, Block] = {block.spec.block(): block for block in core_blocks()}
        self._modules: dict[type, Block] = {block.spec: block for block in self._blocks.values()}
        for plugin in self.plugins:
            for architecture in plugin.records.get("zoo_architectures", ()):
                self._claims.setdefault(architecture.name, []).append((plugin, architecture))
                for model_type in () if architecture.bridged else architecture.model_types:
                    self._types.setdefault(model_type, []).append((plugin, architecture))
            for block in plugin.records.get("zoo_blocks", ()):
                self._blocks.setdefault(block.spec.block(), block)
                self._modules.setdefault(block.spec, block)

    @property
    def architectures(self) -> dict[str, Architecture]:
        """The architectures that can be asked for, by name; contested ones by their qualified names."""
        found = {}
        for name, claims in sorted(self._claims.items()):
            if claims[0][1].bridged:
                continue
            try:
                found[name] = self._one(claims, name, quiet=True)[1]
            except PluginError:
                found |= {f"{plugin.distribution}::{name}": architecture for plugin, architecture in claims}
        return found

    @property
    def bridged(self) -> dict[str, Architecture]:
        """The architectures that another library's code runs, as "library::name", where no other has the model_type."""
        given = {name: claims[0][1] for name, claims in sorted(self._claims.items())}
        return {
            name: architecture
            for name, architecture in given.items()
            if architecture.bridged and not set(architecture.model_types) & set(self._types)
        }

    @property
    def commands(self) -> dict[str, Command]:
        """Subcommands that plugins add."""
        given = (c for plugin in self.plugins for c in plugin.records.get("zoo_commands", ()))
        return {command.name: command for command in given}

    def plugin_of(self, architecture: Architecture) -> Plugin:
        """The plugin that gave this architecture."""
        return next(p for claims in self._claims.values() for p, a in claims if a is architecture)

    def architecture(self, name: str) -> Architecture:
        """The architecture of that name, plain or qualified; SourceError, with the nearest names, for none."""
        distribution, _, plain = ("", "", name) if name in self._claims else name.rpartition("::")
        claims = self._claims.get(plain, [])
        if distribution:
            claims = [claim for claim in claims if claim[0].distribution == distribution]
        if not claims:
            raise SourceError(f"unknown architecture {name!r}{self.suggestion(name)}; `zoo list` shows all")
        return self._one(claims, plain)[1]

    def suggestion(self, name: str) -> str:
        """ "; did you mean …?" with the nearest architecture names, or nothing."""
        import difflib

        plain = {full.rpartition("::")[2]: full for full in (*self.bridged, *self.architectures)}
        near = [plain[one] for one in difflib.get_close_matches(name.lower(), plain, 3, 0.5)]
        return f"; did you mean {' or '.join(near)}?" if near else ""

    def _one(
        self, claims: list[tuple[Plugin, Architecture]], name: str, quiet: bool = False
    ) -> tuple[Plugin, Architecture]:
        theirs = [claim for claim in claims if not claim[0].ours]
        if len(theirs) > 1:
            options = " or ".join(f"{plugin.distribution}::{a.name}" for plugin, a in theirs)
            raise PluginError(f"{name!r} is claimed by several plugins: ask for {options}")
        if theirs and len(claims) > 1 and not quiet:
            ours = next(a for plugin, a in claims if plugin.ours)
            warnings.warn(
                f"{name!r} is served by the plugin {theirs[0][0].distribution}, not by the zoo's own {ours.name}",
                stacklevel=3,
            )
        return theirs[0] if theirs else claims[0]

    def resolve(self, config: Mapping[str, Any]) -> Architecture:
        """The architecture of a checkpoint's config; ConfigError when no plugin knows it.

        A plugin that bridges to another library is asked last, when no other has the config.
        """
        if name := self._resolved(config, bridges=False):
            return self.architecture(name)
        model_type = config.get("model_type")
        if not isinstance(model_type, str):
            raise ConfigError("config.json: model_type is missing; name one with --architecture")
        if model_type in self._types:
            return self._one(self._types[model_type], model_type)[1]
        if name := self._resolved(config, bridges=True):
            return self.architecture(name)
        raise ConfigError(f"config.json: model_type {model_type!r} is of no architecture that the zoo has")

    def _resolved(self, config: Mapping[str, Any], bridges: bool) -> str | None:
        """The first name that a plugin's `zoo_resolve` gives, of those that bridge or of the others."""
        for plugin, function in resolvers(p for p in self.plugins if p.bridges == bridges):
            try:
                name = function(config)
            except Exception as error:
                raise PluginError(
                    f"plugin {plugin.name}: zoo_resolve raised {type(error).__name__}: {error}"
                ) from error
            if name:
                return name
        return None

    def block(self, identifier: str) -> Block:
        """The block "kind/name"; PluginError for none."""
        if identifier not in self._blocks:
            raise PluginError(f"there is no block {identifier!r}; known: {', '.join(sorted(self._blocks))}")
        return self._blocks[identifier]

    def module(self, spec: type) -> Any:
        """The class that runs a spec, imported now."""
        if spec not in self._modules:
            raise PluginError(f"no plugin registers a module for the block {spec.__name__}")
        return import_target(self._modules[spec].module)

    def strategy(self, task: str, settings: Iterable[str] = ()) -> Strategy:
        """The first strategy that serves a task and takes all of `settings`, else the first; PluginError for none."""
        theirs = [s for plugin in self.plugins for s in plugin.records.get("zoo_strategies", ())]
        serving = [strategy for strategy in (*theirs, *core_strategies()) if task in strategy.tasks]
        if not serving:
            raise PluginError(f"no strategy serves the task {task!r}")
        wanted = set(settings)
        return next((strategy for strategy in serving if wanted <= set(strategy.options)), serving[0])


@cache
def registry() -> Registry:
    """The registry of the installed plugins, filled at the first call."""
    return Registry(load_plugins())
