"""Probes show the values inside a module while it runs, and may replace them; hooks get what probes show.

While a model has hooks, each of its modules has another class, made of a probe and the module's own class. The probe's
methods call those of the module (`super()`), note the result, and return it. Afterwards every module has its own class
again: a model without hooks runs no line of a probe. A model may have several hooks at a time: each is given what the one
before it gave back. A `Recorder` keeps values by address.

Axes: B batch, T new tokens, S cached and new, M tokens of a source, D width, H heads, G key/value heads, K width of a
head, F hidden.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import wraps
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import mlx.core as mx
import mlx.nn as nn

from zoo.architecture import ModuleProbe
from zoo.blocks.model import modules_of
from zoo.cache import Cache
from zoo.errors import PluginError, ZooError, in_words
from zoo.generation.sampling.guidance import runs_negative_prompt
from zoo.host.plugins import plugin_at_fault
from zoo.host.registry import Registry

# The methods of a model that begin a pass; `encode` and `decode` are those of an encoder-decoder.
ENTRIES = ("backbone", "encode", "decode", "__call__")


class Value(NamedTuple):
    """A value's `axes` ("B H T S", empty if unknown), the meaning of its numbers and their `unit`.

    Parts along the axis `item_axis` are addressed by number: `pattern.2`. With `item`, "head", they have that name as
    well: `head.2` is part 2 of the value `heads`.

    `derived` names the value that this one is computed from, if the model itself does not use this one. Interventions then
    change that value. A `stepwise` value is noted once a token, (B, 1, …), as a recurrent module computes it, and an
    intervention gets one token at a time.
    """

    axes: str
    summary: str
    unit: str = ""
    item: str = ""
    item_axis: str = ""
    derived: str = ""
    stepwise: bool = False


class Hook:
    """Receives the values that probes report. The model continues with the value that `note` returns."""

    def note(self, address: str, value: mx.array, about: Value) -> mx.array:
        """The value at `address`, or its replacement."""
        raise NotImplementedError

    def begin(self, kind: str, inputs: tuple[Any, ...], options: Mapping[str, Any]) -> None:
        """A pass of the model begins: `kind` is the name of the method that is called, with these arguments."""

    def end(self) -> None:
        """The pass ends."""


class Traces(NamedTuple):
    """What a probe notes. `output` describes the module's result, at the module's own path; None does not note it.

    `values` are noted by name: a value `pattern` of the module at `layers.3.mixer` has the address
    `layers.3.mixer.pattern`. `inputs` maps the name of a part to the name of the value that this part is called with:
    `{"down": "hidden"}`. `parts` describes the results of parts, and overrides what their own probes declare.
    """

    output: Value | None = Value("", "what the module gives")
    values: Mapping[str, Value] = MappingProxyType({})
    inputs: Mapping[str, str] = MappingProxyType({})
    parts: Mapping[str, Value | None] = MappingProxyType({})


class Probe:
    """The probe of any module: it notes the module's result.

    A probe for a class of modules derives from this one and declares in `traces` what it notes. It overrides methods of
    the module; each calls the module's own (`super()`) and notes a value by name.
    """

    traces: ClassVar[Traces] = Traces()

    # Set by `hooked`, for each module.
    _address: ClassVar[str] = ""
    _hooks: ClassVar[list[Hook]]
    _output: ClassVar[Value | None] = None
    _input: ClassVar[tuple[str, Value] | None] = None

    @classmethod
    def traces_of(cls, module: nn.Module) -> Traces:
        """What is noted of this module: `traces`, unless the probe's modules differ in what they compute."""
        return cls.traces

    def __call__(self, *args: Any, **options: Any) -> Any:
        if self._input is not None and args and isinstance(args[0], mx.array):
            args = (self._report(self._input[0], args[0], self._input[1]), *args[1:])
        given = super().__call__(*args, **options)  # type: ignore[misc]
        return self.note_output(given) if isinstance(given, mx.array) else given

    def note_output(self, value: mx.array) -> mx.array:
        """Report the module's result; returns it, or its replacement."""
        return value if self._output is None else self._report(self._address, value, self._output)

    def note(self, name: str, value: mx.array) -> mx.array:
        """Report the value `name`, which `traces` declares; returns it, or its replacement.

        PluginError for a name that is not declared.
        """
        about = self.traces.values.get(name)
        if about is None:
            own = next(
                base for base in type(self).__mro__ if issubclass(base, Probe) and "traces" in vars(base)
            )
            probe = f"{own.__module__}:{own.__qualname__}"
            raise PluginError(f"{probe} notes {name!r}, which its `traces` do not declare")
        address = f"{self._address}.{name}" if self._address else name
        noted = self._report(address, value, about)
        return value if about.derived else noted

    def _report(self, address: str, value: mx.array, about: Value) -> mx.array:
        for hook in self._hooks:
            value = hook.note(address, value, about)
        return value


def values_of(model: nn.Module, registry: Registry) -> dict[str, Value]:
    """Every address of a model with a description of its value: the module's output, or a value that its probe notes."""
    values: dict[str, Value] = {}
    for path, one in _probed(model, registry).items():
        if one.output is not None:
            values[path] = one.output
        for name, value in one.traces.values.items():
            values[_path_of(path, name)] = value
    return values


class _Probed(NamedTuple):
    """A module, its own class, the probe of this class, what the probe notes of the module, and the module's output.

    The output is None where there is none to note.
    """

    module: nn.Module
    kind: type
    probe: type[Probe]
    traces: Traces
    output: Value | None


def _probed(model: nn.Module, registry: Registry) -> dict[str, _Probed]:
    probed = {}
    for path, module in modules_of(model).items():
        kind = type(module)
        if issubclass(kind, Probe):  # a hooked class is made of a probe and the module's own
            kind = kind.__bases__[1]
        probe = probe_of(kind, registry)
        traces = probe.traces_of(module)
        probed[path] = _Probed(module, kind, probe, traces, traces.output if _called(kind) else None)
    for path, one in list(probed.items()):
        for part, value in one.traces.parts.items():
            below = _path_of(path, part)
            if below in probed and _called(probed[below].kind):
                probed[below] = probed[below]._replace(output=value)
    probed[""] = probed[""]._replace(output=None)  # the model's own is that of its last part
    return probed


def probe_of(kind: type, registry: Registry) -> type[Probe]:
    """The probe of a class of modules: that of the class itself, else of the nearest class that it derives from.

    PluginError when what a plugin gave is no probe.
    """
    table = registry.table(ModuleProbe)
    for base in kind.__mro__:
        record = table.get(f"{base.__module__}:{base.__qualname__}")
        if record is not None:
            probe = record.load()
            if not (isinstance(probe, type) and issubclass(probe, Probe)):
                raise PluginError(
                    f"{record.target} is no probe: it must derive from {Probe.__module__}:Probe"
                )
            return probe
    return Probe


@contextmanager
def hooked(model: nn.Module, hook: Hook, registry: Registry) -> Iterator[None]:
    """Let `hook` see the values of a model within the block, after the hooks that it has already.

    PluginError, with the plugin's name, for an error in the code of a third party's probe.
    """
    if isinstance(model, Probe):
        model._hooks.append(hook)
        try:
            yield
        finally:
            model._hooks.remove(hook)
        return
    hooks = [hook]
    probed = _probed(model, registry)
    inputs = {
        _path_of(path, part): (_path_of(path, name), one.traces.values[name])
        for path, one in probed.items()
        for part, name in one.traces.inputs.items()
    }
    try:
        for path, one in probed.items():
            about = {
                "_address": path,
                "_hooks": hooks,
                "_output": one.output,
                "_input": inputs.get(path),
                "__module__": one.kind.__module__,
            }
            set_class(one.module, _hooked_class(one.kind, one.probe, about))
        yield
    except Exception as error:
        if (line := _probe_fault(error, {one.probe for one in probed.values()}, registry)) is not None:
            raise PluginError(line) from error
        raise
    finally:
        for one in probed.values():
            set_class(one.module, one.kind)


def _path_of(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _called(kind: type) -> bool:
    return issubclass(kind, Callable)  # type: ignore[arg-type]


def _probe_fault(error: Exception, probes: set[type[Probe]], registry: Registry) -> str | None:
    """The line for an error that was raised by the code of a probe itself, and not by the module that it calls."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    name = frame.f_globals.get("__name__")
    if isinstance(error, ZooError) or name not in {probe.__module__ for probe in probes}:
        return None
    plugin = plugin_at_fault(error, (plugin for plugin in registry.plugins if not plugin.first_party))
    return f"{f'plugin {plugin.name}: ' if plugin else ''}a probe of {name} failed: {in_words(error)}"


def _hooked_class(kind: type, probe: type[Probe], about: dict[str, Any]) -> type:
    """The class of a module while it has hooks: the probe before the module's own."""
    if _called(kind):

        @wraps(kind.__call__)  # type: ignore[operator]  # a model may inspect the signature
        def call(self: Any, *args: Any, **options: Any) -> Any:
            return probe.__call__(self, *args, **options)

        about["__call__"] = call
    made = type(kind.__name__, (probe, kind), about)
    if not about["_address"]:
        _report_passes(made, about["_hooks"])
    return made


def _report_passes(model: type, hooks: list[Hook]) -> None:
    """Wrap the methods of a model that may be called first, so that the hooks know when a pass begins and ends."""
    running = False

    def entry(name: str, own: Any) -> Any:
        @wraps(own)
        def call(self: Any, *args: Any, **options: Any) -> Any:
            nonlocal running
            if running:
                return own(self, *args, **options)
            running = True
            for hook in hooks:
                hook.begin(name, args, options)
            try:
                return own(self, *args, **options)
            finally:
                running = False
                for hook in hooks:
                    hook.end()

        return call

    for name in ENTRIES:
        if callable(own := getattr(model, name, None)):
            setattr(model, name, entry(name, own))


def set_class(module: nn.Module, kind: type) -> None:
    """Make a module one of another class."""
    object.__setattr__(module, "__class__", kind)


@dataclass
class RecordedPass:
    """One pass through the model.

    `kind` is the method that was called: "backbone", "encode", "decode", or "__call__". `tokens` are the ids that it
    read, `start` the position of the first. `kv_cache_size`: it wrote a cache, which then held `cached_numbers` numbers
    (0 where it is another library's).
    `values` are its values by address, as the model computed them.
    """

    kind: str
    tokens: list[int]
    start: int
    cached: bool
    cached_numbers: int = 0
    values: dict[str, mx.array] = field(default_factory=dict)


class Recorder(Hook):
    """Keeps the values whose addresses match one of the patterns `only` ("layers.3.*"); all values without a pattern.

    The passes over a negative prompt, which guidance makes beside those of the text, are left out.
    """

    def __init__(self, only: Sequence[str] = ()) -> None:
        self.only = tuple(only)
        self.passes: list[RecordedPass] = []
        self.about: dict[str, Value] = {}
        self._cache: Any = None
        self._evaluated = 0

    def begin(self, kind: str, inputs: tuple[Any, ...], options: Mapping[str, Any]) -> None:
        """A pass begins: its tokens are the first ids among the arguments."""
        if runs_negative_prompt():
            return
        ids = next((a for a in (*inputs, *options.values()) if isinstance(a, mx.array) and a.ndim == 2), None)
        caches = [a for a in (*inputs, options.get("cache")) if isinstance(a, list)]
        self._cache = caches[0] if caches else None
        tokens = [] if ids is None or ids.dtype == mx.float32 else [int(id) for id in ids[0].tolist()]
        before = [p for p in self.passes if p.kind == kind and p.cached] if caches else []
        self.passes.append(RecordedPass(kind, tokens, sum(len(p.tokens) for p in before), bool(caches)))

    def end(self) -> None:
        """The pass ends: count what its cache holds now."""
        if runs_negative_prompt():
            return
        caches = [cache for cache in self._cache or () if isinstance(cache, Cache)]
        self.passes[-1].cached_numbers = sum(cache.held for cache in caches)
        self._cache = None

    def note(self, address: str, value: mx.array, about: Value) -> mx.array:
        """Keep a value of the current pass, in the order of computation; a later value at the same address replaces it.

        A stepwise value is concatenated along T.
        """
        if runs_negative_prompt():
            return value
        if self.passes and (not self.only or any(fnmatchcase(address, p) for p in self.only)):
            values, whole = self.passes[-1].values, value
            before = values.pop(address, None)
            if about.stepwise and before is not None:
                whole = mx.concatenate([before, value], axis=about.axes.split().index("T"))
            values[address] = whole
            self.about[address] = about
        return value

    def evaluate(self) -> None:
        """Evaluate what was noted since the last call, so that no graph grows from token to token."""
        for record in self.passes[self._evaluated :]:
            mx.eval(list(record.values.values()))
        self._evaluated = max(0, len(self.passes) - 1)  # the last one may go on
