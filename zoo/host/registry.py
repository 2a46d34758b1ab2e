"""The registry: what the plugins gave, by name, and which of it serves a model."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

from zoo.architecture import Architecture, Block, Drawing, Objective, Strategy, import_target
from zoo.architecture.architecture import Alias, Record
from zoo.errors import PluginError, SourceError, did_you_mean
from zoo.host import core as core_plugin
from zoo.host.hookspecs import RECORDS
from zoo.host.plugins import BLOCKED, FIRST_PARTY, Plugin, collect, load_plugins
from zoo.host.record_table import RecordTable, T, choose
from zoo.version import __version__

RECIPE_TYPE = "zoo-recipe"  # the model_type of a folder whose config.json holds its recipe


@cache
def core() -> Plugin:
    """The zoo's own blocks, strategies, formats, objectives and commands, as a plugin that is always there."""
    return Plugin("core", FIRST_PARTY, __version__, module=core_plugin.__name__, records=collect(core_plugin))


class Registry:
    """The records of a list of plugins, by the names that a `RecordTable` lets them have.

    `model_types` are the architectures by the `model_type` of the checkpoints that they run.
    """

    def __init__(self, plugins: Iterable[Plugin]) -> None:
        self.plugins = [core(), *(plugin for plugin in plugins if plugin is not core())]
        kinds: tuple[type[Record], ...] = (*RECORDS.values(), Alias)
        self._tables: dict[type[Record], RecordTable[Any]] = {
            kind: RecordTable(kind.noun, kind.choose if kind.by_name else "choose one by ZOO_BLOCK: it is of")
            for kind in kinds
        }
        self.model_types = RecordTable[Architecture]("model_type", "choose with `architecture`")
        self._modules: dict[type, Block] = {}
        # The zoo's own come first, so that no other plugin's module runs a block of the zoo's.
        for plugin in sorted(self.plugins, key=lambda plugin: not plugin.first_party):
            for hook, kind in RECORDS.items():
                for record in plugin.records.get(hook, ()):
                    self._add(plugin, kind, record)

    def _add(self, plugin: Plugin, kind: type[Record], record: Any) -> None:
        if kind is Block and (runs := self._modules.setdefault(record.spec, record)) is not record:
            line = f"{runs.module} already runs {record.spec.__name__}; {record.module} is skipped"
            warnings.warn(f"plugin {plugin.name}: {line}", stacklevel=2)
            return
        self._tables[kind].add(record.identifier, plugin, record)
        if kind is Architecture:
            for alias in record.aliases:
                self.table(Alias).add(alias.name, plugin, alias)
            for model_type in () if record.bridged else (*record.model_types, *record.text_of):
                self.model_types.add(model_type, plugin, record)

    def table(self, record: type[T]) -> RecordTable[T]:
        """The records of one type, such as `Strategy`, with the plugins that claim each name."""
        return self._tables[record]

    @property
    def architectures(self) -> dict[str, Architecture]:
        """The architectures by name; qualified where the plain name finds another architecture."""
        return {name: a for name, a in self.table(Architecture).listed().items() if not a.bridged}

    @property
    def bridged(self) -> dict[str, Architecture]:
        """Those that another library's code runs, as "library::name", where no other has the model_type."""
        return {
            name: a
            for name, a in self.table(Architecture).listed().items()
            if a.bridged and not any(model_type in self.model_types for model_type in a.model_types)
        }

    @property
    def blocks(self) -> dict[str, Block]:
        """The blocks, by "kind/name"."""
        return self.table(Block).listed()

    @property
    def strategies(self) -> dict[str, Strategy]:
        """The strategies, by name."""
        return self.table(Strategy).listed()

    def __contains__(self, name: str) -> bool:
        """Whether some plugin claims this architecture's name, plain or qualified, contested or not."""
        return name in self.table(Architecture)

    def plugin(self, name: str) -> Plugin:
        """The plugin of that name, or of the distribution of that name; PluginError for none."""
        for plugin in self.plugins:
            if name in (plugin.name, plugin.distribution):
                return plugin
        raise PluginError(f"no plugin {name!r}{did_you_mean(name, [p.name for p in self.plugins])}")

    def plugin_of(self, record: Record) -> Plugin:
        """The plugin that gave this very record; PluginError for none."""
        if isinstance(record, Architecture) and record.name == RECIPE_TYPE:
            return core()  # made for one recipe, so no plugin registers it
        table = next(table for kind, table in self._tables.items() if isinstance(record, kind))
        if (plugin := table.plugin_of(record)) is None:
            raise PluginError(f"no plugin gave this {record.noun}")
        return plugin

    def unloaded_plugin(self, name: str) -> Plugin | None:
        """The first plugin that is not loaded and that, or whose distribution or package, is called `name`."""
        return next((p for p in self.plugins if p.state != "loaded" and p.is_called(name)), None)

    def unloaded_hint(self, name: str = "") -> str:
        """A hint for an error about an unknown name: "; the plugin … is not loaded", or "" if all plugins are loaded.

        It names the plugin called `name`, else those that failed or that ZOO_BLOCK names.
        """
        called = self.unloaded_plugin(name)
        unloaded = [called] if called else [p for p in self.plugins if p.failed or p.error == BLOCKED]
        if len(unloaded) > 1:
            return f"; {_not_loaded(unloaded)}"
        return "".join(
            f"; the plugin {p.name} ({p.label}) is {p.state} and not loaded: {p.error}" for p in unloaded
        )

    @property
    def contested_names(self) -> dict[str, list[str]]:
        """The names that several third parties claim and that none therefore has, each with those to ask for instead.

        They are written as in `Plugin.gives`: "gptj", "layer/parallel", "strategy/greedy", "zoo hello".
        """
        found = {
            kind.prefix + name: options
            for kind, table in self._tables.items()
            if kind.by_name
            for name, options in table.contested().items()
        }
        types = self.model_types.contested().items()
        return found | {f"model_type {name}": options for name, options in types if name not in found}

    def architecture(self, name: str | Architecture) -> Architecture:
        """The architecture of that name, plain or qualified, whatever its case; SourceError, with the nearest names, for none."""
        if isinstance(name, Architecture):
            return name
        table = self.table(Architecture)
        if (found := table.get(table.spelling(name))) is None:
            raise SourceError(f"unknown architecture {name!r}{self.suggestion(name)}; `zoo list` shows all")
        return found

    def suggestion(self, name: str, near: Sequence[str] = ()) -> str:
        """ "; did you mean …?" with the nearest names, what an alias stands for, the plugins that are not loaded, or nothing.

        `near` are names to suggest in the place of those that are spelled alike.
        """
        if (alias := self.table(Alias).get(name)) is not None:
            return f"; it is the preset {alias.architecture.name}:{alias.preset.name}"
        distribution, _, plain = name.rpartition("::")
        if self.unloaded_plugin(distribution or plain):
            return self.unloaded_hint(distribution or plain)
        architectures = self.table(Architecture).similar(name)
        aliases = [a for a in self.table(Alias).similar(name) if not a.startswith(tuple(architectures))]
        near = near or architectures + aliases
        # Another library's many names are suggested only where the zoo and the plugins have none like it.
        near = [match for match in near if match not in self.bridged] or near
        if not near:
            return self.unloaded_hint()
        failed = [plugin for plugin in self.plugins if plugin.failed]
        return f"; did you mean {' or '.join(near)}?{f' ({_not_loaded(failed)})' if failed else ''}"

    def block(self, identifier: str) -> Block:
        """The block "kind/name"; PluginError, which lists those there are, for none."""
        return self.table(Block).require(identifier)

    def module(self, spec: type) -> Any:
        """The class that runs a spec, imported now."""
        if spec not in self._modules:
            raise PluginError(f"no plugin registers a module for the block {spec.__name__}")
        return import_target(self._modules[spec].module)

    def drawing(self, spec: type) -> Drawing | None:
        """How a spec's class is drawn, else its nearest base; a third party's drawing comes before the zoo's."""
        found: dict[type, Drawing] = {}
        for plugin, record in self.table(Drawing).pairs():
            if record.spec not in found or not plugin.first_party:
                found[record.spec] = record
        return next((found[base] for base in spec.__mro__ if base in found), None)

    def strategy(
        self,
        task: str,
        settings: Iterable[str] = (),
        *,
        name: str | None = None,
        architecture: Architecture | None = None,
    ) -> Strategy:
        """The strategy `name`, else the first that serves the task and takes all of `settings`, else the first.

        PluginError where there is none, or several third parties' fit.
        """
        wanted = set(settings)
        return choose(
            self.table(Strategy),
            lambda strategy: task in strategy.tasks,
            f"serves the task {task!r}",
            name=name,
            given_by=self.table(Architecture).plugin_of(architecture),
            prefers=lambda strategy: wanted <= set(strategy.setting_names),
        )

    def objective(self, architecture: Architecture, name: str | None = None) -> Objective:
        """The objective `name`, else the first that can train the architecture; PluginError as for strategies."""
        return choose(
            self.table(Objective),
            lambda objective: objective.serves(architecture),
            f"trains {architecture.name}: {architecture.task} with attention {architecture.causality}",
            name=name,
            given_by=self.table(Architecture).plugin_of(architecture),
        )


_in_use: Registry | None = None


def _not_loaded(plugins: Sequence[Plugin]) -> str:
    names = ", ".join(plugin.name for plugin in plugins)
    subject = f"the plugin {names} is" if len(plugins) == 1 else f"the plugins {names} are"
    return f"{subject} not loaded: `zoo plugins` says why"


@contextmanager
def using(registry: Registry) -> Iterator[Registry]:
    """Make `default_registry()` return `registry` within the block, whatever else is installed."""
    global _in_use
    before, _in_use = _in_use, registry
    try:
        yield registry
    finally:
        _in_use = before


def isolated(*plugins: object) -> Registry:
    """A registry of the zoo's own plugins and the given modules (or objects with hooks), whatever is installed.

    PluginError when one of these breaks the contract.
    """
    given = []
    for plugin in plugins:
        module = plugin.__name__ if isinstance(plugin, ModuleType) else ""
        name = (module or type(plugin).__name__).replace("_", "-")
        given.append(Plugin(name, name, module=module, records=collect(plugin)))
    return Registry([*_first_party(), *given])


@cache
def _first_party() -> tuple[Plugin, ...]:
    return tuple(plugin for plugin in load_plugins({"ZOO_PLUGINS": FIRST_PARTY}) if plugin.first_party)


def default_registry() -> Registry:
    """The registry of the installed plugins, made at the first call."""
    return _in_use or _installed()


@cache
def _installed() -> Registry:
    return Registry(load_plugins())
