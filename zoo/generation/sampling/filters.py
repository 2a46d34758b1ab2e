"""Filters: functions from logits (B, V) to logits (B, V) that remove the tokens which must not be drawn.

A removed token has the logit -inf, so that the next filter and the draw see the renormalised rest. Each keeps at least
one token of a row. Axes: B batch, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from zoo.architecture import Sampler
from zoo.architecture.settings import checked_settings
from zoo.errors import PluginError, PromptError, in_words
from zoo.generation.sampling.logits import NEG_INF, LogitsProcessor, logprobs
from zoo.generation.settings import Settings
from zoo.host.registry import Registry


def draw_processors(settings: Settings) -> tuple[LogitsProcessor, ...]:
    """The temperature and the filters that `settings` ask for, in the order in which they are applied; none for greedy.

    Top-n-sigma, which the temperature does not change, is the first filter, while the logits are those of all tokens;
    the others are in transformers' order.
    """
    if settings.greedy:
        return ()
    heat, sigma, k = settings.temperature, settings.top_n_sigma, settings.top_k
    p, least, mass = settings.top_p, settings.min_p, settings.typical_p
    steps = (
        (True, LogitsProcessor("temperature", heat, lambda logits: logits / heat)),
        (sigma > 0, LogitsProcessor("top_n_sigma", sigma, lambda logits: top_n_sigma(logits, sigma))),
        (k > 0, LogitsProcessor("top_k", k, lambda logits: top_k(logits, k))),
        (p < 1, LogitsProcessor("top_p", p, lambda logits: top_p(logits, p))),
        (least > 0, LogitsProcessor("min_p", least, lambda logits: min_p(logits, least))),
        (mass < 1, LogitsProcessor("typical_p", mass, lambda logits: typical(logits, mass))),
    )
    return tuple(processor for asked, processor in steps if asked)


def top_k(logits: mx.array, k: int) -> mx.array:
    """Keep the k largest logits of each row, (B, V) -> (B, V)."""
    if k >= logits.shape[-1]:
        return logits
    # By rank and not by a threshold, so that equal logits do not let in more than k.
    rest = mx.argpartition(-logits, k - 1, axis=-1)[..., k:]
    return mx.put_along_axis(logits, rest, mx.array(NEG_INF, logits.dtype), axis=-1)


def top_p(logits: mx.array, p: float) -> mx.array:
    """Keep the smallest set of tokens whose probabilities sum to at least p, (B, V) -> (B, V).

    Holtzman et al., 2019, "The Curious Case of Neural Text Degeneration".
    """
    order = mx.argsort(-logits, axis=-1)
    probabilities = mx.softmax(mx.take_along_axis(logits, order, axis=-1), axis=-1)
    before = mx.cumsum(probabilities, axis=-1) - probabilities  # the mass of all likelier tokens
    kept = mx.put_along_axis(mx.zeros(logits.shape, mx.bool_), order, before < p, axis=-1)
    return mx.where(kept, logits, NEG_INF)


def min_p(logits: mx.array, p: float) -> mx.array:
    """Keep tokens at least p times as likely as the likeliest, (B, V) -> (B, V).

    Nguyen et al., 2024, "Turning Up the Heat: Min-p Sampling".
    """
    best = logits.max(axis=-1, keepdims=True)
    return mx.where(logits >= best + mx.log(mx.array(p)), logits, NEG_INF)


def typical(logits: mx.array, p: float) -> mx.array:
    """Keep the tokens whose surprise is nearest to the entropy, until they reach p: (B, V) -> (B, V).

    Meister et al., 2022, "Locally Typical Sampling", equation 8.
    """
    each = logprobs(logits)
    probabilities = mx.exp(each)
    surprise = mx.where(probabilities > 0, -each, 0)
    entropy = (probabilities * surprise).sum(axis=-1, keepdims=True)  # (B, 1)
    distance = mx.where(probabilities > 0, mx.abs(surprise - entropy), float("inf"))
    order = mx.argsort(distance, axis=-1)  # nearest first
    ordered = mx.take_along_axis(probabilities, order, axis=-1)
    before = mx.cumsum(ordered, axis=-1) - ordered  # the mass of all that are nearer
    first = mx.arange(logits.shape[-1]) == 0  # one token is always kept
    kept = mx.put_along_axis(mx.zeros(logits.shape, mx.bool_), order, (before < p) | first, axis=-1)
    return mx.where(kept, logits, NEG_INF)


def top_n_sigma(logits: mx.array, n: float) -> mx.array:
    """Keep the logits within n standard deviations of the largest, (B, V) -> (B, V).

    Tang et al., 2024, "Top-nσ: Not All Logits Are You Need", section 3. Tokens removed before do not count.
    """
    there = logits > NEG_INF
    count = there.sum(axis=-1, keepdims=True)
    mean = mx.where(there, logits, 0).sum(axis=-1, keepdims=True) / count
    spread = mx.sqrt(mx.where(there, (logits - mean) ** 2, 0).sum(axis=-1, keepdims=True) / count)
    return mx.where(logits >= logits.max(axis=-1, keepdims=True) - n * spread, logits, NEG_INF)


def xtc(
    logits: mx.array, probability: float, threshold: float, *, key: mx.array, exempt: mx.array | None = None
) -> mx.array:
    """With `probability`, remove every token of at least `threshold` but the least likely of them: (B, V) -> (B, V).

    "Exclude top choices", by its author p-e-w, has no paper; this is text-generation-webui's and llama.cpp's filter.
    One coin is thrown a row, by `key`. The tokens marked in `exempt` (V,), booleans, are neither removed nor the one
    that is kept in place of the others: line breaks and end tokens, without which texts would not end.
    """
    probabilities = mx.softmax(logits, axis=-1)
    top = probabilities >= threshold
    if exempt is not None:
        top = top & ~exempt
    least = mx.argmin(mx.where(top, probabilities, float("inf")), axis=-1, keepdims=True)  # (B, 1)
    # Where one token alone is among them it is the least likely, and nothing is removed.
    gone = top & (mx.arange(logits.shape[-1]) != least)
    thrown = mx.random.uniform(shape=(logits.shape[0], 1), key=key) < probability
    return mx.where(gone & thrown, NEG_INF, logits)


def surprise(logits: mx.array) -> mx.array:
    """The surprise of each token in bits, (…, V) -> (…, V)."""
    return -logprobs(logits) / math.log(2)


class Mirostat:
    """Mirostat 2: keeps the surprise of one sequence near the target `tau` by a bound, which begins at twice the target.

    Surprise is -log2 of a probability, in bits. Basu et al., 2021, "Mirostat: A Neural Text Decoding Algorithm that
    Directly Controls Perplexity", without its estimate of an exponent.
    After each token it falls by `eta` times what the surprise has above the target. The surprise is that of the
    distribution before the bound, as the paper has it; llama.cpp's is that of the renormalised rest.
    """

    def __init__(self, tau: float, eta: float) -> None:
        self.tau, self.eta = tau, eta
        self.bound = mx.array(2.0 * tau)
        self._surprise: mx.array | None = None  # (1, V), of the last distribution

    def __call__(self, logits: mx.array) -> mx.array:
        """The logits within the bound, and the largest in any case: (1, V) -> (1, V)."""
        self._surprise = surprise(logits)
        best = logits.max(axis=-1, keepdims=True)
        return mx.where((self._surprise <= self.bound) | (logits == best), logits, NEG_INF)

    def update(self, token: mx.array) -> None:
        """The token (1,) that was drawn of the last distribution, evaluated or not."""
        assert self._surprise is not None, "a token is drawn of a distribution"
        # The bound keeps growing where nothing surprises; beyond the surprise of any token it does nothing.
        error = mx.take(self._surprise[0], token)[0] - self.tau
        self.bound = self.bound - self.eta * error


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
