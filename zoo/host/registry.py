"""The registry: what the plugins gave, by name, and which of it serves a model.

Of the plugins that claim one name, a third party gets it before the zoo; of two third parties, neither does.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache
from types import ModuleType
from typing import Any, Generic, TypeVar

from zoo.architecture import Architecture, Block, Drawing, Objective, Strategy, import_target
from zoo.architecture.architecture import Alias, Record
from zoo.errors import PluginError, SourceError, did_you_mean
from zoo.host import core as core_plugin
from zoo.host.hookspecs import RECORDS
from zoo.host.plugins import FIRST_PARTY, Plugin, collect, load_plugins
from zoo.version import __version__

T = TypeVar("T", bound=Record)

RECIPE_TYPE = "zoo-recipe"  # the model_type of a folder whose config.json holds its recipe


class RecordTable(Generic[T]):
    """The records of one kind, by the names that they claim.

    A name that two third parties claim is ambiguous: a person must ask for "distribution::name". A name that a third
    party and the zoo both claim is the third party's, with a warning, so that no later release of the zoo takes a name
    from a plugin.
    """

    def __init__(self, noun: str, choose: str) -> None:
        """`noun` is what messages call a record, `choose` how they tell a person to choose one."""
        self.noun, self.choose = noun, choose
        self._claims: dict[str, list[tuple[Plugin, T]]] = {}

    def add(self, name: str, plugin: Plugin, record: T) -> None:
        """Add a plugin's `record` under `name`."""
        self._claims.setdefault(name, []).append((plugin, record))

    def __contains__(self, name: str) -> bool:
        """Whether some plugin claims this name, plain or qualified."""
        return bool(self.claims(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._claims)

    def pairs(self) -> Iterator[tuple[Plugin, T]]:
        """Every record, with its plugin."""
        return (claim for claims in self._claims.values() for claim in claims)

    def claims(self, name: str) -> list[tuple[Plugin, T]]:
        """Every record that claims a name, plain or qualified, each with its plugin."""
        distribution, _, plain = ("", "", name) if name in self._claims else name.rpartition("::")
        claims = self._claims.get(plain, [])
        return [claim for claim in claims if distribution in ("", claim[0].distribution)]

    def get(self, name: str) -> T | None:
        """The record of a name, None when no plugin claims it; PluginError when several third parties do."""
        return self.winner(claims, name)[1] if (claims := self.claims(name)) else None

    def require(self, name: str) -> T:
        """The record of a name; PluginError, which lists the names there are, for none."""
        found = self.get(name)
        if found is None:
            raise PluginError(f"no {self.noun} {name!r}; there are: {', '.join(self.listed()) or 'none'}")
        return found

    def winner(self, claims: list[tuple[Plugin, T]], name: str) -> tuple[Plugin, T]:
        """The claim that gets the name, with a warning when it replaces one of the zoo's; PluginError when none does."""
        found = _holder(claims)
        if found is None:
            options = " or ".join(_of_third_parties(claims))
            raise PluginError(f"{self.noun} {name!r} is claimed by several plugins: {self.choose} {options}")
        if not found[0].first_party and len(claims) > 1:
            replaced = next(claim for claim in claims if claim[0].first_party)
            warnings.warn(
                f"{self.noun} {name!r} is served by the plugin {found[0].label}, "
                f"not by the zoo's own {_qualified(*replaced)}",
                stacklevel=3,
            )
        return found

    def contested(self) -> dict[str, list[str]]:
        """The names that several third parties claim, each with the qualified names to ask for instead."""
        return {
            name: _of_third_parties(claims)
            for name, claims in self._claims.items()
            if _holder(claims) is None
        }

    def listed(self) -> dict[str, T]:
        """Every record by a name that finds it: qualified where the plain one finds another record or is contested."""
        found: dict[str, T] = {}
        for name, claims in self._claims.items():
            winner = _holder(claims)
            for claim in claims:
                found[name if claim is winner else f"{claim[0].distribution}::{name}"] = claim[1]
        return dict(sorted(found.items()))

    def plugin_of(self, record: T | None) -> Plugin | None:
        """The plugin that gave this very record, None for none."""
        return next((plugin for plugin, given in self.pairs() if given is record), None)

    def similar(self, name: str) -> list[str]:
        """At most three names that resemble this one, whatever library stands before "::"."""
        plain = {full.rpartition("::")[2]: full for full in sorted(self._claims, key=lambda n: "::" not in n)}
        return [plain[match] for match in get_close_matches(name.lower(), plain, 3, 0.5)]


def choose(
    table: RecordTable[T],
    serves: Callable[[T], bool],
    what: str,
    *,
    name: str | None = None,
    given_by: Plugin | None = None,
    prefers: Callable[[T], bool] = lambda record: True,
) -> T:
    """The record `name`, else the first that `serves` and that the caller `prefers`, else the first that serves.

    `what` says in messages what is to be served. Records of the distribution of `given_by`, the architecture's plugin, come
    first, then the zoo's own; another third party's serves unasked only where none of these does. PluginError when there is none,
    or several third parties' fit.
    """
    if name is not None:
        found = table.get(name)
        if found is None or not serves(found):
            known = ", ".join(name for name, record in table.listed().items() if serves(record))
            raise PluginError(f"{table.noun} {name!r}: none of that name {what}; known: {known or 'none'}")
        return found

    def rank(claim: tuple[Plugin, T]) -> int:
        same = given_by is not None and claim[0].distribution == given_by.distribution
        return 0 if same else 1 if claim[0].first_party else 2

    serving = sorted((claim for claim in table.pairs() if serves(claim[1])), key=rank)
    fitting = [claim for claim in serving if prefers(claim[1])] or serving[:1]
    if not fitting:
        raise PluginError(f"no {table.noun} {what}")
    if rank(fitting[0]) == 2 and len(fitting) > 1:
        options = " or ".join(_qualified(*claim) for claim in fitting)
        raise PluginError(f"several plugins have a {table.noun} that {what}: ask for {options}")
    return fitting[0][1]


def _qualified(plugin: Plugin, record: Record) -> str:
    return f"{plugin.distribution}::{record.identifier}"


def _of_third_parties(claims: list[tuple[Plugin, T]]) -> list[str]:
    return [_qualified(*claim) for claim in claims if not claim[0].first_party]


def _holder(claims: list[tuple[Plugin, T]]) -> tuple[Plugin, T] | None:
    """The claim that gets a name, a third party's before the zoo's; None where several third parties claim it."""
    third_party = [claim for claim in claims if not claim[0].first_party]
    return None if len(third_party) > 1 else (*third_party, *claims)[0]


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
            for model_type in () if record.bridged else record.model_types:
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

    def unloaded_plugin(self, name: str, *, of_record: bool = False, failed: bool = False) -> Plugin | None:
        """The first plugin that is not loaded and is called `name`, or whose code has the model_type `name`.

        With `of_record`, its code has it as the name of a record or a model_type. With `failed`, it is a third party's
        and broken or incompatible.
        """
        from zoo.host.broken_plugins import has_name, has_string

        has = has_name if of_record else has_string
        unloaded = [plugin for plugin in self.plugins if plugin.state != "loaded"]
        if failed:
            unloaded = [plugin for plugin in unloaded if plugin.failed and not plugin.first_party]
        called = (plugin for plugin in unloaded if plugin.is_called(name))
        return next(called, None) or next((p for p in unloaded if has(p.module, name)), None)

    def unloaded_block(self, identifier: str) -> Plugin | None:
        """The first plugin that is not loaded and whose code has the block "kind/name"."""
        from zoo.host.broken_plugins import has_block

        unloaded = (plugin for plugin in self.plugins if plugin.state != "loaded")
        return next((plugin for plugin in unloaded if has_block(plugin.module, identifier)), None)

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
        """The architecture of that name, plain or qualified, or itself; SourceError, with the nearest names, for none."""
        if isinstance(name, Architecture):
            return name
        if (found := self.table(Architecture).get(name)) is None:
            raise SourceError(f"unknown architecture {name!r}{self.suggestion(name)}; `zoo list` shows all")
        return found

    def suggestion(self, name: str) -> str:
        """ "; did you mean …?" with the nearest names, what an alias stands for, the unloaded plugin that has it, or nothing."""
        if (alias := self.table(Alias).get(name)) is not None:
            return f"; it is the preset {alias.architecture.name}:{alias.preset.name}"
        distribution, _, plain = name.rpartition("::")
        if unloaded := self.unloaded_plugin(distribution or plain, of_record=True):
            return f"; it is named by the {unloaded.unloaded_label}"
        near = self.table(Architecture).similar(name) + self.table(Alias).similar(name)
        # Another library's many names are suggested only where the zoo and the plugins have none like it.
        near = [match for match in near if match not in self.bridged] or near
        return f"; did you mean {' or '.join(near)}?" if near else ""

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
