"""Discovery of plugins, each isolated: one that fails is shown with its error and the others work on.

A plugin is a module named by an entry point of the group `zoo`. `ZOO_PLUGINS` (comma-separated entry-point
names) allows, `ZOO_BLOCK` denies, `ZOO_STRICT=1` raises instead of setting a broken plugin aside.
"""

from __future__ import annotations

import os
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import Distribution, EntryPoint, entry_points
from typing import Any

import pluggy

from zoo import hookspecs
from zoo.architecture import API, Architecture, Block, Command, Strategy
from zoo.errors import PluginError

GROUP = "zoo"
FIRST_PARTY = "mlx-zoo"

# What each collecting hook must yield.
RECORDS: dict[str, type] = {
    "zoo_architectures": Architecture,
    "zoo_blocks": Block,
    "zoo_strategies": Strategy,
    "zoo_commands": Command,
}


@dataclass
class Plugin:
    """One plugin and how it fared. `state`: "loaded", "blocked", "incompatible" or "broken"."""

    name: str
    distribution: str
    version: str
    state: str = "loaded"
    error: str | None = None
    traceback: str | None = field(default=None, repr=False)
    records: dict[str, list[Any]] = field(default_factory=dict, repr=False)
    module: Any = field(default=None, repr=False)

    @property
    def ours(self) -> bool:
        """Whether it ships with the zoo itself."""
        return self.distribution == FIRST_PARTY

    @property
    def bridges(self) -> bool:
        """Whether its architectures are another library's."""
        return any(architecture.bridged for architecture in self.records.get("zoo_architectures", ()))

    @property
    def gives(self) -> list[str]:
        """The names of what it registered; of another library's architectures their number."""
        given = self.records.get("zoo_architectures", ())
        architectures = [a.name for a in given if not a.bridged]
        for library, count in Counter(a.name.rpartition("::")[0] for a in given if a.bridged).items():
            architectures.append(f"{library}::… ({count})")
        blocks = [b.spec.block() for b in self.records.get("zoo_blocks", ())]
        return architectures + blocks + [f"zoo {c.name}" for c in self.records.get("zoo_commands", ())]

    def as_json(self) -> dict[str, Any]:
        """What `zoo plugins --json` prints of it."""
        keys = ("name", "distribution", "version", "state", "gives", "error")
        return {key: getattr(self, key) for key in keys}


def load_plugins(environ: Mapping[str, str] = os.environ) -> list[Plugin]:
    """Every installed plugin, ordered by distribution and entry-point name, loaded or set aside with its error."""
    allowed, denied = _names(environ.get("ZOO_PLUGINS")), _names(environ.get("ZOO_BLOCK"))
    plugins = []
    for point in sorted(entry_points(group=GROUP), key=lambda p: (_distribution(p.dist)[0], p.name)):
        plugin = Plugin(point.name, *_distribution(point.dist))
        if (allowed and point.name not in allowed) or point.name in denied:
            plugin.state = "blocked"
        else:
            _load(plugin, point, strict=environ.get("ZOO_STRICT", "") not in ("", "0"))
        plugins.append(plugin)
    return plugins


def _names(value: str | None) -> set[str]:
    return {name.strip() for name in (value or "").split(",") if name.strip()}


@cache  # each look parses the distribution's metadata anew
def _distribution(distribution: Distribution | None) -> tuple[str, str]:
    return (distribution.name, distribution.version) if distribution else ("", "")


def _load(plugin: Plugin, point: EntryPoint, strict: bool) -> None:
    try:
        plugin.module = point.load()
        plugin.records = _collect(plugin.module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: a plugin that exits must not end the program
        if strict:
            raise PluginError(f"plugin {plugin.name}: {_reason(error)}") from error
        plugin.state = "broken"
        plugin.error = _reason(error)
        plugin.traceback = traceback.format_exc()
        return
    newer = [a for a in plugin.records.get("zoo_architectures", ()) if a.api > API]
    if newer:
        plugin.state = "incompatible"
        plugin.error = (
            f"{newer[0].name} needs contract version {newer[0].api}; this zoo has {API}: upgrade mlx-zoo"
        )
        plugin.records = {}
        if strict:
            raise PluginError(f"plugin {plugin.name}: {plugin.error}")


def _reason(error: BaseException) -> str:
    words = " ".join(str(error).split())
    return (
        words
        if isinstance(error, PluginError)
        else f"{type(error).__name__}: {words}"
        if words
        else type(error).__name__
    )


def _collect(module: Any) -> dict[str, list[Any]]:
    """Everything the hooks of one plugin yield, checked for type."""
    manager = pluggy.PluginManager("zoo")
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(module)
    except pluggy.PluginValidationError as error:
        raise PluginError(str(error).split("\n")[-1]) from error
    _refuse_misspelled(manager, module)
    records: dict[str, list[Any]] = {}
    for hook, kind in RECORDS.items():
        for implementation in getattr(manager.hook, hook).get_hookimpls():
            given = implementation.function()
            if not isinstance(given, Iterable):
                raise PluginError(f"{hook} gave {type(given).__name__}, not {kind.__name__} records")
            records[hook] = list(given)
            for record in records[hook]:
                if not isinstance(record, kind):
                    raise PluginError(f"{hook} gave {record!r}, not a record of type {kind.__name__}")
    return records


def _refuse_misspelled(manager: pluggy.PluginManager, module: Any) -> None:
    known = {name for name in dir(hookspecs) if name.startswith("zoo_")}
    for name in sorted({caller.name for caller in manager.get_hookcallers(module) or ()} - known):
        import difflib

        near = difflib.get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise PluginError(f"there is no hook {name}{hint}")


def resolvers(plugins: Iterable[Plugin]) -> Iterable[tuple[Plugin, Any]]:
    """The `zoo_resolve` functions of the loaded plugins."""
    for plugin in plugins:
        function = getattr(plugin.module, "zoo_resolve", None)
        if plugin.state == "loaded" and function is not None:
            yield plugin, function
