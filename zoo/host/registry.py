"""What the plugins gave, by name, each kind of record; and which architecture a config is of."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache
from types import ModuleType
from typing import Any

from zoo import __version__
from zoo.architecture import (
    Architecture,
    Block,
    CheckpointFormat,
    Command,
    Corpus,
    Objective,
    QuantizedFormat,
    Sampler,
    Strategy,
    TokenizerFormat,
    import_target,
)
from zoo.errors import ConfigError, PluginError, SourceError, in_words
from zoo.host import core as core_plugin
from zoo.host.collect import collect
from zoo.host.discovery import FIRST_PARTY, Plugin, load_plugins
from zoo.host.precedence import RecordTable

# The key of a config.json under which a folder that a third party's plugin serves says so: "zoo-gptj 0.1".
WRITER = "zoo_plugin"
_PLUGIN = re.compile(r"[\w.-]{1,80}( [\w.+!-]{1,40})?")


@cache
def core() -> Plugin:
    """The zoo's own blocks, strategies, formats and objectives, as a plugin that is always there."""
    return Plugin("core", FIRST_PARTY, __version__, module=core_plugin.__name__, records=collect(core_plugin))


class Registry:
    """The records of a list of plugins, by the names that `zoo.host.precedence` lets them have."""

    def __init__(self, plugins: Iterable[Plugin]) -> None:
        self.plugins = [core(), *(plugin for plugin in plugins if plugin is not core())]
        self._architectures = RecordTable[Architecture]("architecture")
        self._types = RecordTable[Architecture](
            "model_type", "choose with --architecture", lambda architecture: architecture.name
        )
        self._blocks = RecordTable[Block]("block")
        self._strategies = RecordTable[Strategy]("strategy")
        self._samplers = RecordTable[Sampler]("sampler")
        self._tokenizers = RecordTable[TokenizerFormat]("tokenizer")
        self._formats = RecordTable[QuantizedFormat]("quant_method", "choose one by ZOO_BLOCK: it is of")
        self.checkpoints = RecordTable[CheckpointFormat](
            "checkpoint", "choose one by ZOO_BLOCK: it is of", lambda format: format.name
        )
        self._corpora = RecordTable[Corpus]("corpus")
        self._objectives = RecordTable[Objective]("objective")
        self.commands = RecordTable[Command]("command", "run zoo")
        self._modules: dict[type, Block] = {}
        # The zoo's own come first, so that nobody else's module runs a block of theirs.
        for plugin in sorted(self.plugins, key=lambda plugin: not plugin.ours):
            self._add(plugin)

    def _add(self, plugin: Plugin) -> None:
        for architecture in plugin.records.get("zoo_architectures", ()):
            self._architectures.add(architecture.name, plugin, architecture)
            for model_type in () if architecture.bridged else architecture.model_types:
                self._types.add(model_type, plugin, architecture)
        for block in plugin.records.get("zoo_blocks", ()):
            self._add_block(plugin, block)
        for strategy in plugin.records.get("zoo_strategies", ()):
            self._strategies.add(strategy.name, plugin, strategy)
        for claims, hook in (
            (self._samplers, "zoo_samplers"),
            (self._tokenizers, "zoo_tokenizers"),
            (self._formats, "zoo_formats"),
            (self.checkpoints, "zoo_checkpoints"),
            (self._corpora, "zoo_corpora"),
            (self._objectives, "zoo_objectives"),
            (self.commands, "zoo_commands"),
        ):
            for record in plugin.records.get(hook, ()):
                claims.add(record.name, plugin, record)

    def _add_block(self, plugin: Plugin, block: Block) -> None:
        if block.spec in self._modules:
            warnings.warn(
                f"plugin {plugin.name}: {block.spec.__name__} is run by {self._modules[block.spec].module} already; "
                f"{block.module} is passed over",
                stacklevel=2,
            )
            return
        self._modules[block.spec] = block
        self._blocks.add(block.spec.block(), plugin, block)

    @property
    def architectures(self) -> dict[str, Architecture]:
        """The architectures that can be asked for, by name; those whose name another has by their qualified names."""
        return {name: a for name, a in self._architectures.listed().items() if not a.bridged}

    @property
    def bridged(self) -> dict[str, Architecture]:
        """Those that another library's code runs, as "library::name", where no other has the model_type."""
        return {
            name: a
            for name, a in self._architectures.listed().items()
            if a.bridged and not any(model_type in self._types for model_type in a.model_types)
        }

    @property
    def blocks(self) -> dict[str, Block]:
        """The blocks, by "kind/name"."""
        return self._blocks.listed()

    @property
    def strategies(self) -> dict[str, Strategy]:
        """The strategies, by name."""
        return self._strategies.listed()

    @property
    def corpora(self) -> dict[str, Corpus]:
        """The corpora, by name."""
        return self._corpora.listed()

    @property
    def objectives(self) -> dict[str, Objective]:
        """The objectives, by name."""
        return self._objectives.listed()

    def __contains__(self, name: str) -> bool:
        """Whether an architecture of that name, plain or qualified, was given, be it contested."""
        return name in self._architectures

    def has_type(self, model_type: str) -> bool:
        """Whether some architecture claims this model_type."""
        return model_type in self._types

    def plugin(self, name: str) -> Plugin:
        """The plugin of that name, or of the distribution of that name; PluginError for none."""
        for plugin in self.plugins:
            if name in (plugin.name, plugin.distribution):
                return plugin
        near = get_close_matches(name, [p.name for p in self.plugins], 1)
        raise PluginError(f"no plugin {name!r}{f'; did you mean {near[0]}?' if near else ''}")

    def plugin_of(self, record: Architecture | Strategy) -> Plugin:
        """The plugin that gave this very architecture or strategy."""
        if isinstance(record, Strategy):
            return self._strategies.plugin_of(record)
        return self._architectures.plugin_of(record)

    def architecture(self, name: str | Architecture) -> Architecture:
        """The architecture of that name, plain or qualified, or itself; SourceError, with the nearest names, for none."""
        if isinstance(name, Architecture):
            return name
        found = self._architectures.get(name)
        if found is None:
            raise SourceError(f"unknown architecture {name!r}{self.suggestion(name)}; `zoo list` shows all")
        return found

    def suggestion(self, name: str) -> str:
        """ "; did you mean …?" with the nearest architecture names, the plugin that would have it, or nothing."""
        if absent := self.absent(name, named=True):
            return f"; it is named by the {absent.absence}"
        near = self._architectures.near(name)
        # Another library's many names are for where the zoo and the plugins have none like it.
        near = [one for one in near if one not in self.bridged] or near
        return f"; did you mean {' or '.join(near)}?" if near else ""

    def resolve(self, config: Mapping[str, Any]) -> Architecture:
        """The architecture of a checkpoint's config; ConfigError when no plugin knows it.

        A plugin's `zoo_resolve` is asked before its `model_types`, and those of third parties before the zoo's own;
        one that bridges to another library is asked when nobody else has the config.
        """
        model_type = config.get("model_type")
        typed = self._types.of(model_type) if isinstance(model_type, str) else []
        resolved = list(self._resolved(config))
        for ours in (False, True):
            found = [c for c in resolved if c[0].ours == ours] or [c for c in typed if c[0].ours == ours]
            if found:
                # After a third party's come those of the zoo that it takes this config from, to be named.
                beaten = [] if ours else [claim for claim in typed if claim[0].ours]
                claims = {id(a): (self.plugin_of(a), a) for _, a in (*found, *beaten)}
                return self._types.chosen(list(claims.values()), str(model_type))[1]
        if not isinstance(model_type, str):
            raise ConfigError("config.json: model_type is missing; name one with --architecture")
        absent = self.absent(model_type)
        for _, architecture in self._resolved(config, bridges=True):
            if absent is not None:
                library = architecture.name.partition("::")[0]
                warnings.warn(
                    f"model_type {model_type!r} is named by the {absent.absence}; {library}'s code runs it instead",
                    stacklevel=2,
                )
            return architecture
        if absent is not None:
            raise ConfigError(f"config.json: model_type {model_type!r} is named by the {absent.absence}")
        writer = config.get(WRITER)
        installed = {plugin.distribution or plugin.name for plugin in self.plugins}
        if (
            isinstance(writer, str)
            and _PLUGIN.fullmatch(writer)
            and writer.partition(" ")[0] not in installed
        ):
            raise ConfigError(
                f"config.json: model_type {model_type!r} is of the plugin {writer}, by which this folder was written "
                "and which is not installed"
            )
        raise ConfigError(f"config.json: model_type {model_type!r} is of no architecture that the zoo has")

    def absent(self, name: str, named: bool = False) -> Plugin | None:
        """The first plugin that is not loaded and whose code has this model_type; when `named`, as something's name."""
        from zoo.host.unloaded import mentions, names

        unloaded = (plugin for plugin in self.plugins if plugin.state != "loaded" and plugin.module)
        found = names if named else mentions
        return next((plugin for plugin in unloaded if found(plugin.module, name)), None)

    @property
    def contested(self) -> dict[str, list[str]]:
        """The names that several third parties claim and that none therefore has, each with those to ask for instead.

        Written as `Plugin.gives` has them: "gptj", "layer/parallel", "strategy/greedy".
        """
        found = self._architectures.contested() | self._blocks.contested()
        for model_type, options in self._types.contested().items():
            if model_type not in found:
                found[f"model_type {model_type}"] = [f"--architecture {option}" for option in options]
        return found | {f"strategy/{name}": options for name, options in self._strategies.contested().items()}

    def _resolved(
        self, config: Mapping[str, Any], bridges: bool = False
    ) -> Iterator[tuple[Plugin, Architecture]]:
        """What the `zoo_resolve` of each plugin says, of those that bridge or of the others.

        One that fails is passed over with a notice.
        """
        for plugin in (plugin for plugin in self.plugins if plugin.bridges == bridges):
            for function in plugin.records.get("zoo_resolve", ()):
                try:
                    if name := function(config):
                        own = [a for a in plugin.records.get("zoo_architectures", ()) if a.name == name]
                        yield plugin, own[0] if own else self.architecture(name)
                except (Exception, SystemExit) as error:
                    line = f"plugin {plugin.name}: zoo_resolve: {in_words(error)}"
                    if os.environ.get("ZOO_STRICT", "") not in ("", "0"):
                        raise PluginError(line) from error
                    warnings.warn(f"{line}; it is passed over", stacklevel=2)

    def block(self, identifier: str) -> Block:
        """The block "kind/name"; PluginError for none."""
        found = self._blocks.get(identifier)
        if found is None:
            raise PluginError(f"there is no block {identifier!r}; known: {', '.join(sorted(self._blocks))}")
        return found

    def module(self, spec: type) -> Any:
        """The class that runs a spec, imported now."""
        if spec not in self._modules:
            raise PluginError(f"no plugin registers a module for the block {spec.__name__}")
        return import_target(self._modules[spec].module)

    def strategy(
        self,
        task: str,
        settings: Iterable[str] = (),
        *,
        name: str | None = None,
        architecture: Architecture | None = None,
    ) -> Strategy:
        """The strategy `name`, else the first that serves the task and takes all of `settings`, else the first.

        The one given together with the architecture comes first, then the zoo's own; no other third party's runs
        a model unasked where one of these can. PluginError when there is none, or several third parties' fit.
        """
        if name is not None:
            found = self._strategies.get(name)
            if found is None or task not in found.tasks:
                names = ", ".join(n for n, strategy in self.strategies.items() if task in strategy.tasks)
                raise PluginError(
                    f"strategy {name!r}: none of that name serves the task {task!r}; known: {names}"
                )
            return found
        rank = self._rank(architecture)
        serving = sorted((c for c in self._strategies.pairs() if task in c[1].tasks), key=rank)
        wanted = set(settings)
        fitting = [claim for claim in serving if wanted <= set(claim[1].options)] or serving[:1]
        if not fitting:
            raise PluginError(f"no strategy serves the task {task!r}")
        return _first(fitting, rank, "strategies")

    def corpus(self, name: str) -> Corpus:
        """The corpus of that name; PluginError, naming those there are, for none."""
        return self._corpora.require(name)

    def objective(self, architecture: Architecture, name: str | None = None) -> Objective:
        """The objective `name`, else the first that can train the architecture, chosen as a strategy is.

        PluginError when there is none, it trains other architectures, or several third parties' fit.
        """
        kind = f"{architecture.task} with attention {architecture.causality}"
        if name is not None:
            found = self._objectives.get(name)
            if found is None or not found.serves(architecture):
                names = ", ".join(n for n, o in self.objectives.items() if o.serves(architecture))
                raise PluginError(
                    f"objective {name!r}: none of that name trains to {kind}; known: {names or 'none'}"
                )
            return found
        rank = self._rank(architecture)
        serving = sorted((c for c in self._objectives.pairs() if c[1].serves(architecture)), key=rank)
        if not serving:
            raise PluginError(f"{architecture.name}: training to {kind} is not implemented")
        return _first(serving, rank, "objectives")

    def _rank(self, architecture: Architecture | None) -> Callable[[tuple[Plugin, Any]], int]:
        """What orders claims: first of the architecture's own distribution, then the zoo's own, then the others'."""
        home = next((p.distribution for p, a in self._architectures.pairs() if a is architecture), None)
        return lambda claim: 0 if claim[0].distribution == home else 1 if claim[0].ours else 2

    @property
    def formats(self) -> dict[str, QuantizedFormat]:
        """The quantized formats, by their `quant_method`."""
        return self._formats.listed()

    def format(self, method: str) -> QuantizedFormat | None:
        """The quantized format of a `quant_method`, None for none; PluginError when several plugins claim it."""
        return self._formats.get(method)

    @property
    def tokenizers(self) -> dict[str, TokenizerFormat]:
        """The kinds of tokenizer that plugins read, by name."""
        return self._tokenizers.listed()

    def sampler(self, name: str) -> Sampler:
        """The sampler of that name; PluginError, naming those there are, for none."""
        return self._samplers.require(name)


def _first(claims: list[tuple[Plugin, Any]], rank: Callable[[tuple[Plugin, Any]], int], what: str) -> Any:
    """The first of ranked claims; PluginError where only third parties' are left, and several."""
    if rank(claims[0]) == 2 and len(claims) > 1:
        options = " or ".join(f"{plugin.distribution}::{record.name}" for plugin, record in claims)
        raise PluginError(f"several plugins' {what} could serve this: ask for {options}")
    return claims[0][1]


_in_use: Registry | None = None


@contextmanager
def using(registry: Registry) -> Iterator[Registry]:
    """Within it, `default_registry()` is `registry`: for tests that must not depend on what else is installed."""
    global _in_use
    before, _in_use = _in_use, registry
    try:
        yield registry
    finally:
        _in_use = before


def isolated(*plugins: Any) -> Registry:
    """A registry of the zoo's own plugins and the given modules (or objects with hooks), whatever is installed.

    PluginError when one of these breaks the contract.
    """
    theirs = []
    for given in plugins:
        module = given.__name__ if isinstance(given, ModuleType) else ""
        name = (module or type(given).__name__).replace("_", "-")
        theirs.append(Plugin(name, name, module=module, records=collect(given)))
    return Registry([*_ours(), *theirs])


@cache
def _ours() -> tuple[Plugin, ...]:
    return tuple(plugin for plugin in load_plugins({"ZOO_PLUGINS": FIRST_PARTY}) if plugin.ours)


def default_registry() -> Registry:
    """The registry of the installed plugins, filled at the first call."""
    return _in_use or _installed()


@cache
def _installed() -> Registry:
    return Registry(load_plugins())
