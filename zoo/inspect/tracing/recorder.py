"""The hooks of traces and interventions: one keeps values by address, one replaces some. Axes: B batch, T tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import mlx.core as mx

from zoo.cache import Cache
from zoo.inspect.tracing.probe import Hook, Value


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
    """Keeps the values whose addresses match one of the patterns `only` ("layers.3.*"); all values without a pattern."""

    def __init__(self, only: Sequence[str] = ()) -> None:
        self.only = tuple(only)
        self.passes: list[RecordedPass] = []
        self.about: dict[str, Value] = {}
        self._cache: Any = None
        self._evaluated = 0

    def begin(self, kind: str, inputs: tuple[Any, ...], options: Mapping[str, Any]) -> None:
        """A pass begins: its tokens are the first ids among the arguments."""
        ids = next((a for a in (*inputs, *options.values()) if isinstance(a, mx.array) and a.ndim == 2), None)
        caches = [a for a in (*inputs, options.get("cache")) if isinstance(a, list)]
        self._cache = caches[0] if caches else None
        tokens = [] if ids is None or ids.dtype == mx.float32 else [int(id) for id in ids[0].tolist()]
        before = [p for p in self.passes if p.kind == kind and p.cached] if caches else []
        self.passes.append(RecordedPass(kind, tokens, sum(len(p.tokens) for p in before), bool(caches)))

    def end(self) -> None:
        """The pass ends: count what its cache holds now."""
        caches = [cache for cache in self._cache or () if isinstance(cache, Cache)]
        self.passes[-1].cached_numbers = sum(cache.held for cache in caches)
        self._cache = None

    def note(self, address: str, value: mx.array, about: Value) -> mx.array:
        """Keep a value of the current pass, in the order of computation; a later value at the same address replaces it.

        A stepwise value is concatenated along T.
        """
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


class InterventionHook(Hook):
    """Replaces values: `edits` has for each address the functions that change its value, in order."""

    def __init__(self, edits: Mapping[str, Sequence[Callable[[mx.array], mx.array]]]) -> None:
        self.edits = edits
        self.used: set[str] = set()

    def note(self, address: str, value: mx.array, about: Value) -> mx.array:
        """The value after the edits of its address."""
        for edit in self.edits.get(address, ()):
            value = edit(value)
            self.used.add(address)
        return value
