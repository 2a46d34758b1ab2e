"""Watching a model: the classes of its modules are replaced for a while, and put back.

Several watchers may watch a model at a time: each is given what the one before it gave back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo.architecture import Probe as ProbeRecord
from zoo.architecture import import_target
from zoo.host.registry import Registry
from zoo.insight.tracing.probe import Probe, Value, Watcher

# The methods of a model, any of which may be called first; `encode` and `decode` are those of an encoder-decoder.
ENTRIES = ("backbone", "encode", "decode")


def modules_of(model: nn.Module) -> dict[str, nn.Module]:
    """Every module of a model by its path, "" for the model itself; one that is used twice has the first of its paths."""
    found: dict[str, nn.Module] = {}
    seen: set[int] = set()
    for path, module in sorted(model.named_modules(), key=lambda pair: pair[0].count(".") if pair[0] else -1):
        if id(module) not in seen:
            seen.add(id(module))
            found[path] = module
    return found


def values_of(model: nn.Module, registry: Registry) -> dict[str, Value]:
    """Every address of a model, and what is there: the output of each module, and the values that its probe notes."""
    found: dict[str, Value] = {}
    for path, module in modules_of(model).items():
        probe = probe_of(type(module), registry)
        if path and probe.traces.output is not None:
            found[path] = probe.traces.output
        for name, value in probe.traces.values.items():
            found[f"{path}.{name}" if path else name] = value
    return found


def probe_of(kind: type, registry: Registry) -> type[Probe]:
    """The probe of a class of modules: that of the class itself, else of the nearest class that it derives from."""
    table = registry.table(ProbeRecord)
    for base in kind.__mro__:
        record = table.get(f"{base.__module__}:{base.__qualname__}")
        if record is not None:
            return import_target(record.target)
    return Probe


class _Group(Watcher):
    """The watchers of one model."""

    def __init__(self) -> None:
        self.members: list[Watcher] = []

    def note(self, address: str, value: mx.array, about: Value) -> mx.array:
        for watcher in self.members:
            value = watcher.note(address, value, about)
        return value

    def begin(self, kind: str, inputs: tuple[Any, ...], options: Mapping[str, Any]) -> None:
        for watcher in self.members:
            watcher.begin(kind, inputs, options)

    def end(self) -> None:
        for watcher in self.members:
            watcher.end()


@contextmanager
def watched(model: nn.Module, watcher: Watcher, registry: Registry) -> Iterator[None]:
    """Let `watcher` see the values of a model within the block, after those that watch it already."""
    if isinstance(model, Probe):
        group = model._watcher
        assert isinstance(group, _Group)
        group.members.append(watcher)
        try:
            yield
        finally:
            group.members.remove(watcher)
        return
    group = _Group()
    group.members.append(watcher)
    modules = modules_of(model)
    before = {path: type(module) for path, module in modules.items()}
    inputs = _inputs(before, registry)
    try:
        for path, module in modules.items():
            _set_class(module, _watched_class(before[path], path, group, registry, inputs.get(path)))
        yield
    finally:
        for path, module in modules.items():
            _set_class(module, before[path])


def _inputs(kinds: Mapping[str, type], registry: Registry) -> dict[str, tuple[str, Value]]:
    """The modules whose input is a value of the module above them: by path, that value's address and description."""
    found = {}
    for path, kind in kinds.items():
        probe = probe_of(kind, registry)
        for part, name in probe.traces.inputs.items():
            prefix = f"{path}." if path else ""
            found[prefix + part] = (prefix + name, probe.traces.values[name])
    return found


def _watched_class(
    kind: type, path: str, watcher: Watcher, registry: Registry, taken: tuple[str, Value] | None
) -> type:
    probe = probe_of(kind, registry)
    about = {"_address": path, "_watcher": watcher, "_input": taken, "__module__": kind.__module__}
    if issubclass(kind, Callable):  # type: ignore[arg-type]
        about["__call__"] = _with_signature(probe, kind)
    if not path:
        about |= _passes(kind, probe, watcher)
    return type(kind.__name__, (probe, kind), about)


def _with_signature(probe: type[Probe], kind: type) -> Any:
    """The probe's call, with the signature of the module's own, which a model may look at."""

    @wraps(kind.__call__)  # type: ignore[operator]
    def call(self: Any, *args: Any, **options: Any) -> Any:
        return probe.__call__(self, *args, **options)

    return call


def _passes(kind: type, probe: type[Probe], watcher: Watcher) -> dict[str, Any]:
    """The methods of the model itself, which tell the watcher that a pass begins and ends."""
    depth = [0]

    def entry(name: str) -> Any:
        own = _with_signature(probe, kind) if name == "__call__" else getattr(kind, name)

        @wraps(own)
        def call(self: Any, *args: Any, **options: Any) -> Any:
            if depth[0]:
                return own(self, *args, **options)
            depth[0] = 1
            watcher.begin(name, args, options)
            try:
                return own(self, *args, **options)
            finally:
                depth[0] = 0
                watcher.end()

        return call

    return {name: entry(name) for name in (*ENTRIES, "__call__") if callable(getattr(kind, name, None))}


def _set_class(module: nn.Module, kind: type) -> None:
    object.__setattr__(module, "__class__", kind)
