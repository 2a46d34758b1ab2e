"""Logits processors of a caller and samplers of plugins, called with checks: what they raise or return names them.

Axes: B batch, T tokens so far, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import mlx.core as mx

from zoo.architecture import Sampler
from zoo.architecture.setting import checked_settings
from zoo.errors import PluginError, ZooError, in_words
from zoo.generation.settings import Settings
from zoo.host.registry import Registry

KEEP = "min_tokens_to_keep"


class CustomFunction:
    """A function that returns logits of the shape it was given, with the `label` and the `error` of its failures."""

    def __init__(self, name: str, label: str, error: type[ZooError], function: Callable[..., Any]) -> None:
        self.name, self.label, self._error = name, label, error
        self._function: Any = function

    def __call__(self, logits: mx.array, *before: mx.array) -> mx.array:
        """Call the function with the arrays `before` and the logits, (B, V) -> (B, V). ZooError names it."""
        # A copy, because a function may assign to its argument.
        returned = self.guarded(self._function, *before, mx.array(logits))
        if not isinstance(returned, mx.array):
            shown: object = type(returned).__name__
        elif returned.shape != logits.shape:
            shown = returned.shape
        elif returned.dtype != logits.dtype:
            shown = returned.dtype
        else:
            return returned
        expected = f"logits {logits.shape} of {logits.dtype}"
        line = f"{self.label} returned {shown}, expected {expected}"
        raise self._error(line.replace("mlx.core.", ""))

    def guarded(self, function: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
        """What a call returns; the exceptions become errors that name this function."""
        try:
            return function(*arguments, **settings)
        except Exception as error:
            raise self._error(f"{self.label}: {in_words(error)}") from error


class CustomProcessor:
    """A logits processor of one sequence: `function(tokens, logits)`, called once for each token.

    `tokens` (T,) are the ids so far, the prompt's first; `logits` (1, V) are float32.
    """

    looks_back = True

    def __init__(self, function: CustomFunction, tokens: Sequence[int]) -> None:
        self.function, self._tokens = function, list(tokens)

    def __call__(self, logits: mx.array) -> mx.array:
        """The logits that the function returns, (1, V) -> (1, V)."""
        return self.function(logits, mx.array(self._tokens))

    def update(self, token: int) -> None:
        """One more token of the text."""
        self._tokens.append(token)


class PluginSampler(CustomFunction):
    """A plugin's sampler with its settings, for one sequence; its exceptions become PluginErrors that name it."""

    def __init__(self, record: Sampler, settings: dict[str, Any]) -> None:
        self.stateful = record.stateful
        target = record.load()
        super().__init__(record.name, f"sampler {record.name}", PluginError, partial(target, **settings))
        if record.stateful:
            self._function = self.guarded(self._function)

    def update(self, token: int) -> None:
        """Tell a stateful sampler which token was chosen."""
        if self.stateful:
            self.guarded(lambda: self._function.update(token))


def name_of(function: Callable[..., Any]) -> str:
    """What messages and traces call a function, or an object that is called."""
    return str(getattr(function, "__name__", type(function).__name__))


def processors_from(registry: Registry, settings: Settings) -> tuple[CustomFunction, ...]:
    """The caller's logits processors, then those of plugins, in order. The errors are those of `filters_from`."""
    callers = []
    for function in settings.logits_processors:
        name = name_of(function)
        callers.append(CustomFunction(name, f"logits processor {name}", ZooError, function))
    plugins = (PluginSampler(*each) for each in _samplers(registry, settings) if each[0].processor)
    return (*callers, *plugins)


def filters_from(registry: Registry, settings: Settings) -> tuple[PluginSampler, ...]:
    """The plugins' samplers that narrow the draw, in order.

    PluginError for an unknown sampler, PromptError for a setting that it does not have.
    """
    return tuple(PluginSampler(*each) for each in _samplers(registry, settings) if not each[0].processor)


def _samplers(registry: Registry, settings: Settings) -> Iterator[tuple[Sampler, dict[str, Any]]]:
    """The record of each sampler that `settings` name, and its settings, checked."""
    for name, given in (settings.samplers or {}).items():
        record = registry.table(Sampler).require(name)
        if any(setting.name == KEEP for setting in record.settings):
            given = {KEEP: settings.min_tokens_to_keep, **given}
        yield record, checked_settings(f"sampler {name}", record.settings, given)
