"""Discovers the installed plugins, each isolated, and finds the one at fault for an error. Imports no mlx.

One that fails is set aside with its error, the others are loaded. A plugin is what an entry point of the group `zoo`
names. `ZOO_PLUGINS` (comma-separated names of plugins or distributions) allows, `ZOO_BLOCK` denies, `ZOO_STRICT=1` raises
instead of setting a broken plugin aside.
"""

from __future__ import annotations

import contextlib
import os
import reprlib
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError, entry_points, requires, version
from itertools import islice
from threading import RLock
from types import FrameType
from typing import Any

import pluggy

from zoo.architecture import API, Architecture
from zoo.architecture.architecture import Record, check_tasks
from zoo.errors import PluginError, contained, did_you_mean, in_words, pluralize
from zoo.host import hookspecs
from zoo.host.hookspecs import HOOKS, RECORDS

GROUP = "zoo"
FIRST_PARTY = "mlx-zoo"
BLOCKED = "ZOO_BLOCK names it"


@dataclass
class Plugin:
    """One plugin and whether it could be loaded. `state`: "loaded", "blocked", "incompatible" or "broken".

    `error` says why it is not loaded, `traceback` where it failed. `records` are what its hooks gave, by hook.
    """

    name: str
    distribution: str = ""
    version: str = ""
    state: str = "loaded"
    error: str | None = None
    traceback: str | None = field(default=None, repr=False)
    module: str = field(default="", repr=False)
    records: dict[str, list[Any]] = field(default_factory=dict, repr=False)

    @property
    def first_party(self) -> bool:
        """Whether it ships with the zoo itself."""
        return self.distribution == FIRST_PARTY

    @property
    def package(self) -> str:
        """The package that its module belongs to."""
        return self.module.partition(".")[0]

    @property
    def label(self) -> str:
        """The distribution and its version, else the plugin's own name: "zoo-good 1.2"."""
        return f"{self.distribution or self.name} {self.version}".strip()

    @property
    def unloaded_label(self) -> str:
        """The plugin and why it is not loaded: "plugin bad (zoo-bad 1.2), which is broken: KeyError"."""
        return f"plugin {self.name} ({self.label}), which is {self.state}: {self.error}"

    @property
    def failed(self) -> bool:
        """Whether it should have been loaded and could not be: broken or incompatible."""
        return self.state not in ("loaded", "blocked")

    def is_called(self, name: str) -> bool:
        """Whether `name` is that of the plugin, its distribution or its package, with or without a leading "zoo-"."""
        names = (self.name, self.package, "" if self.first_party else self.distribution)
        return _bare(name) in map(_bare, filter(None, names))

    @property
    def gives(self) -> list[str]:
        """The names of its records; of drawings, probes and another library's architectures how many there are."""
        names: list[str] = []
        for hook, kind in RECORDS.items():
            records = self.records.get(hook, ())
            if kind.counted:
                names += [pluralize(len(records), kind.noun)] if records else []
                continue
            given = [record.identifier for record in records]
            libraries = Counter(name.partition("::")[0] for name in given if "::" in name)
            names += [kind.prefix + name for name in given if "::" not in name]
            names += [f"{library}::… ({count})" for library, count in libraries.items()]
        return [*names, *("zoo_resolve" for _ in self.records.get("zoo_resolve", ()))]

    def as_json(self) -> dict[str, Any]:
        """What `zoo plugins --json` prints of it."""
        keys = ("name", "distribution", "version", "state", "gives", "error")
        return {key: getattr(self, key) for key in keys}


def _bare(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("zoo-")


@contextlib.contextmanager
def _output_to_errors() -> Iterator[None]:
    """What plugins, and programs that they start, print when imported must not end up among a command's output."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        with contextlib.suppress(OSError, ValueError, AttributeError):  # a process without standard streams
            sys.__stdout__.flush()  # type: ignore[union-attr]
            output = os.dup(1)
            stack.callback(os.close, output)
            os.dup2(2, 1)
            stack.callback(os.dup2, output, 1)
            stack.callback(sys.__stdout__.flush)  # type: ignore[union-attr]
        yield


@_output_to_errors()
def load_plugins(environ: Mapping[str, str] = os.environ) -> list[Plugin]:
    """Every installed plugin, ordered by distribution and entry-point name, loaded or set aside with its error."""
    allowed, denied = _names(environ, "ZOO_PLUGINS"), _names(environ, "ZOO_BLOCK")
    plugins = []
    for point in sorted(entry_points(group=GROUP), key=lambda p: (_distribution(p.dist)[0], p.name)):
        module = ""
        # A malformed entry point: the version of Python decides which error it is.
        with contextlib.suppress(Exception):
            module = point.module
        plugin = Plugin(point.name, *_distribution(point.dist), module=module)
        names = {plugin.name, plugin.distribution}
        if allowed and not names & allowed:
            plugin.state, plugin.error = "blocked", "ZOO_PLUGINS does not name it"
        elif names & denied:
            plugin.state, plugin.error = "blocked", BLOCKED
        else:
            _load_plugin(plugin, point)
            if is_strict(environ) and plugin.state != "loaded":
                raise PluginError(f"plugin {plugin.name} ({plugin.label}): {plugin.error}")
        plugins.append(plugin)
    known = {name for plugin in plugins for name in (plugin.name, plugin.distribution)}
    for name in sorted((allowed | denied) - known):
        warnings.warn(f"ZOO_PLUGINS or ZOO_BLOCK names {name!r}, which is not a plugin", stacklevel=2)
    return plugins


def is_strict(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a broken plugin is an error."""
    return environ.get("ZOO_STRICT", "") not in ("", "0")


def _names(environ: Mapping[str, str], variable: str) -> set[str]:
    """The names in an environment variable, separated by commas."""
    return {name.strip() for name in environ.get(variable, "").split(",") if name.strip()}


@cache  # each access parses the distribution's metadata again
def _distribution(distribution: Distribution | None) -> tuple[str, str]:
    """The name and version of a distribution, empty where its metadata are damaged."""
    try:
        metadata = distribution.metadata  # type: ignore[union-attr]
        return metadata["Name"] or "", metadata["Version"] or ""
    except Exception:
        return "", ""


def _load_plugin(plugin: Plugin, point: EntryPoint) -> None:
    """Import what the entry point names and collect what it gives; a failure is recorded in `plugin`."""
    try:
        with contained():
            plugin.records = collect(point.load())
    except Exception as error:
        words = in_words(error)
        plugin.state, plugin.error = "broken", words + _place(error, plugin)
        if unmet := unmet_requirement(plugin.distribution):
            plugin.error = f"it requires {unmet} ({words})"
        if isinstance(error, NewerContract) or (unmet and unmet.startswith(FIRST_PARTY)):
            plugin.state = "incompatible"
        plugin.traceback = _traceback_of(error)


def _traceback_of(error: Exception) -> str | None:
    """The traceback of an error; None where the class of the error fails to give it."""
    import traceback

    try:
        return "".join(traceback.format_exception(error))
    except Exception:
        return None


def _place(error: BaseException, plugin: Plugin) -> str:
    """Returns the file and line of the innermost frame in the plugin's own code: " (/…/zoo_gptj/__init__.py, line 12)"."""
    if isinstance(error, SyntaxError):  # it names its own
        return ""
    lines = [(frame, line) for frame, line in _frames(error) if _package_of(frame) == plugin.package]
    return f" ({lines[-1][0].f_code.co_filename}, line {lines[-1][1]})" if lines and plugin.package else ""


def unmet_requirement(distribution: str) -> str | None:
    """The first requirement of a distribution that the installed packages do not meet, and what there is instead."""
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    try:
        requirements = [Requirement(line) for line in requires(distribution) or ()]
    except (PackageNotFoundError, ValueError, InvalidRequirement):
        return None
    for wanted in requirements:
        if wanted.marker and not wanted.marker.evaluate({"extra": ""}):
            continue
        name = canonicalize_name(wanted.name)
        try:
            installed = version(name)
        except PackageNotFoundError:
            return f"{name}{wanted.specifier}, which is not installed"
        if not wanted.specifier.contains(installed, prereleases=True):
            return f"{name}{wanted.specifier}, and this is {name} {installed}: upgrade {name}"
    return None


MOST_RECORDS = 10_000  # of one hook: a bridge to a large library gives some hundreds


class NewerContract(PluginError):
    """A record made for a later version of the contract than the running zoo has."""


def collect(plugin: object) -> dict[str, list[Any]]:
    """All that the hooks of `plugin`, a module or object, yield, by hook; under `zoo_resolve` the hook's function.

    PluginError for a hook that is misspelled or unmarked, takes an argument that it is not given, yields something
    other than its records, or yields two of one name; NewerContract for a record of a later version.
    """
    records: dict[str, list[Any]] = {}
    for hook, function in _implementations(plugin).items():
        records[hook] = _checked(hook, function()) if hook in RECORDS else [function]
    own = {architecture.task for architecture in records.get("zoo_architectures", ())}
    own &= {task for strategy in records.get("zoo_strategies", ()) for task in strategy.tasks}
    for hook in records.keys() & RECORDS.keys():
        for record in records[hook]:
            tasks = (record.task,) if isinstance(record, Architecture) else getattr(record, "tasks", ())
            check_tasks(record.label, tasks, own)
    return records


def _checked(hook: str, given: object) -> list[Record]:
    """The records that a hook gave, each of the right type and with a name of its own."""
    kind = RECORDS[hook]
    if not isinstance(given, Iterable):
        raise PluginError(f"{hook} gave {type(given).__name__}, not {kind.__name__} records")
    records: dict[str, Record] = {}
    for record in islice(given, MOST_RECORDS + 1):
        if not isinstance(record, kind):
            raise PluginError(f"{hook} gave {reprlib.repr(record)}, not a record of type {kind.__name__}")
        name = record.identifier
        if name in records:
            raise PluginError(f"{hook} gave two records named {name!r}")
        # Refused before the next record is made, which may fail for being of the later version too.
        if isinstance(record, Architecture) and record.api > API:
            raise NewerContract(
                f"{name} needs contract version {record.api}; this zoo has {API}: upgrade mlx-zoo"
            )
        records[name] = record
    if len(records) > MOST_RECORDS:
        raise PluginError(f"{hook} gave more than {MOST_RECORDS} records")
    return list(records.values())


class PluginManager(pluggy.PluginManager):
    """pluggy's manager, which looks only at what is named as a hook: this takes a tenth of the time."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        return super().parse_hookimpl_opts(plugin, name) if name.startswith("zoo_") else None


# One manager for all plugins, since parsing the specifications takes long. It holds one plugin at a time: one that
# breaks the contract leaves nothing behind.
_manager = PluginManager("zoo")
_manager.add_hookspecs(hookspecs)
_one_at_a_time = RLock()  # looking a plugin up may import another one


def _implementations(plugin: object) -> dict[str, Callable[..., Any]]:
    """The functions that implement the hooks, in the order of the hooks, each checked against its specification."""
    with _one_at_a_time:
        try:
            _manager.register(plugin)
            callers = _manager.get_hookcallers(plugin) or []
            functions = {caller.name: caller.get_hookimpls()[-1].function for caller in callers}
        except pluggy.PluginValidationError as error:
            _, *lines = str(error).splitlines()  # the first names the plugin, as the caller will
            raise PluginError(": ".join(lines).removeprefix("hookimpl definition: ")) from error
        finally:
            if _manager.is_registered(plugin):
                _manager.unregister(plugin)
    for hook in sorted(functions.keys() - set(HOOKS)):
        hint = did_you_mean(hook, HOOKS, f"; there are {', '.join(HOOKS)}")
        raise PluginError(f"there is no hook {hook}{hint}")
    for hook in HOOKS:
        if hook not in functions and callable(getattr(plugin, hook, None)):
            raise PluginError(f"{hook} is not marked: write @hookimpl above it")
    return {hook: functions[hook] for hook in HOOKS if hook in functions}


# Packages whose lines say nothing about a mistake in the code that called them.
LIBRARIES = frozenset({"mlx", "numpy", *sys.stdlib_module_names}) - {"__main__"}


def plugin_at_fault(error: BaseException, plugins: Iterable[Plugin]) -> Plugin | None:
    """The plugin in whose code an error was raised: the one that the innermost frame of any plugin belongs to."""
    packages = {plugin.package: plugin for plugin in plugins if plugin.module}
    found = [packages[name] for frame, _ in _frames(error) if (name := _package_of(frame)) in packages]
    return found[-1] if found else None


def error_with_place(error: BaseException, plugins: Iterable[Plugin]) -> str:
    """An error in one line, that of a block with the block's path and the innermost line of its plugin's code.

    "layers.3.mixer: TypeError: … (/…/zoo_gptj/block.py, line 12)". `plugins` are all that there are: a line of a third
    party's code is preferred to one of the zoo's, and both to those of libraries.
    """
    frames = _frames(error)
    start = next((i for i, (frame, _) in enumerate(frames) if _module(frame) is not None), 0)
    code = [(frame, line) for frame, line in frames[start:] if _package_of(frame) not in LIBRARIES]
    own = {plugin.package for plugin in plugins if plugin.first_party}
    nearest = [place for place in code if _package_of(place[0]) not in own] or code
    # The path of the innermost block in its model, which is the outermost block.
    blocks = [block for frame, _ in frames if (block := _module(frame)) is not None]
    paths: dict[int, str] = {}
    for path, block in blocks[0].named_modules() if blocks else ():
        paths.setdefault(id(block), path)
    path = next((paths[id(block)] for block in reversed(blocks) if id(block) in paths), "")
    where = f" ({nearest[-1][0].f_code.co_filename}, line {nearest[-1][1]})" if nearest else ""
    return f"{f'{path}: ' if path else ''}{in_words(error)}{where}"


def _module(frame: FrameType) -> Any:
    """The module of a model whose method a frame runs; None for another frame."""
    found = frame.f_locals.get("self")
    return found if callable(getattr(found, "named_modules", None)) else None


def _frames(error: BaseException) -> list[tuple[FrameType, int]]:
    import traceback  # costs a start of the program more than all of this file

    return list(traceback.walk_tb(error.__traceback__))


def _package_of(frame: FrameType) -> str:
    return frame.f_globals.get("__name__", "").partition(".")[0]
