"""The samplers that plugins bring, ready for one sequence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from zoo.architecture import Sampler
from zoo.architecture.settings import checked_settings
from zoo.errors import PluginError, PromptError, in_words
from zoo.host.registry import Registry


class PluginFilter:
    """A plugin's sampler with its settings, for one sequence; what goes wrong in it is a PluginError that names it."""

    def __init__(self, record: Sampler, settings: Mapping[str, Any]) -> None:
        self.name, self.stateful = record.name, record.stateful
        self._settings = {} if record.stateful else dict(settings)
        target = record.load()
        self._function = self._guarded(target, **settings) if record.stateful else target

    def __call__(self, logits: mx.array) -> mx.array:
        """The logits after it, (B, V) -> (B, V)."""
        found = self._guarded(self._function, logits, **self._settings)
        if not isinstance(found, mx.array) or found.shape != logits.shape:
            shown = found.shape if isinstance(found, mx.array) else type(found).__name__
            raise PluginError(f"sampler {self.name} gives {shown} where logits {logits.shape} belong")
        return found

    def update(self, token: int) -> None:
        """Tell a stateful sampler which token was chosen."""
        if self.stateful:
            self._guarded(lambda: self._function.update(token))

    def _guarded(self, function: Any, *arguments: Any, **settings: Any) -> Any:
        try:
            return function(*arguments, **settings)
        except Exception as error:
            raise PluginError(f"sampler {self.name}: {in_words(error)}") from error


def filters_of(
    registry: Registry, samplers: Mapping[str, Mapping[str, Any]] | None
) -> tuple[PluginFilter, ...]:
    """The plugins' samplers asked for, by name with settings, in order; PromptError for a setting that one does not take."""
    samplers = {} if samplers is None else samplers
    if not isinstance(samplers, Mapping) or not all(isinstance(v, Mapping) for v in samplers.values()):
        raise PromptError(f"`samplers` must be settings by a sampler's name, got {samplers!r:.60}")
    filters = []
    for name, given in samplers.items():
        record = registry.table(Sampler).require(name)
        filters.append(PluginFilter(record, checked_settings(f"sampler {name}", record.settings, given)))
    return tuple(filters)
