"""The draw of the next token from logits, and the filters that remove the tokens which must not be drawn.

`TokenSampler` chooses the tokens of one sequence from its logits; `sampler` draws for every row of logits (B, V). A filter
is a function from logits (B, V) to logits (B, V). A removed token has the logit -inf, so that the next filter and the draw
see the renormalised rest. Each keeps at least `min_tokens_to_keep` tokens of a row. Axes: B batch, V vocabulary.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import mlx.core as mx

from zoo.errors import PromptError, ZooError
from zoo.generation.sampling.custom import CustomFunction, CustomProcessor, PluginSampler, filters_from
from zoo.generation.sampling.guidance import Guidance
from zoo.generation.sampling.logits import (
    NEG_INF,
    LogitsProcessor,
    LogitsStage,
    logprobs,
    marked,
    record_of,
    stages_of,
)
from zoo.generation.sampling.logits_processors import LogitsProcessors, processors_of
from zoo.generation.settings import Constraints, Settings
from zoo.loading import Loaded
from zoo.runtime import ranks


def draw_processors(settings: Settings) -> tuple[LogitsProcessor, ...]:
    """The temperature and the filters that `settings` ask for, in the order in which they are applied; none for greedy.

    Top-n-sigma, which the temperature does not change, is the first filter, while the logits are those of all tokens;
    the others are in transformers' order.
    """
    if settings.greedy:
        return ()
    heat, sigma, k = settings.temperature, settings.top_n_sigma, settings.top_k
    p, least, mass = settings.top_p, settings.min_p, settings.typical_p
    count = settings.min_tokens_to_keep
    steps: tuple[tuple[bool, str, Callable[[mx.array], mx.array]], ...] = (
        (True, "temperature", lambda logits: logits / heat),
        (sigma > 0, "top_n_sigma", keeping(lambda logits: top_n_sigma(logits, sigma), count)),
        (k > 0, "top_k", lambda logits: top_k(logits, max(k, count))),
        (p < 1, "top_p", keeping(lambda logits: top_p(logits, p), count)),
        (least > 0, "min_p", keeping(lambda logits: min_p(logits, least), count)),
        (mass < 1, "typical_p", lambda logits: typical(logits, mass, count)),
    )
    return tuple(LogitsProcessor(name, function) for asked, name, function in steps if asked)


def keeping(narrow: Callable[[mx.array], mx.array], count: int) -> Callable[[mx.array], mx.array]:
    """The filter `narrow`, changed to keep at least the `count` likeliest tokens."""
    if count == 1:
        return narrow
    return lambda logits: mx.where(top_k(logits, count) > NEG_INF, logits, narrow(logits))


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
    likely = mx.put_along_axis(mx.zeros(logits.shape, mx.bool_), order, before < p, axis=-1)
    return mx.where(likely, logits, NEG_INF)


def min_p(logits: mx.array, p: float) -> mx.array:
    """Keep tokens at least p times as likely as the likeliest, (B, V) -> (B, V).

    Nguyen et al., 2024, "Turning Up the Heat: Min-p Sampling".
    """
    best = logits.max(axis=-1, keepdims=True)
    return mx.where(logits >= best + mx.log(mx.array(p)), logits, NEG_INF)


def typical(logits: mx.array, p: float, count: int = 1) -> mx.array:
    """Keep the tokens whose surprise is nearest to the entropy, until they reach p and are `count`: (B, V) -> (B, V).

    Meister et al., 2022, "Locally Typical Sampling", equation 8.
    """
    log_p = logprobs(logits)
    probabilities = mx.exp(log_p)
    surprise = mx.where(probabilities > 0, -log_p, 0)
    entropy = (probabilities * surprise).sum(axis=-1, keepdims=True)  # (B, 1)
    distance = mx.where(probabilities > 0, mx.abs(surprise - entropy), float("inf"))
    order = mx.argsort(distance, axis=-1)  # nearest first
    ordered = mx.take_along_axis(probabilities, order, axis=-1)
    before = mx.cumsum(ordered, axis=-1) - ordered  # the mass of all that are nearer
    first = mx.arange(logits.shape[-1]) < count
    near = mx.put_along_axis(mx.zeros(logits.shape, mx.bool_), order, (before < p) | first, axis=-1)
    return mx.where(near, logits, NEG_INF)


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
    logits: mx.array,
    probability: float,
    threshold: float,
    *,
    key: mx.array,
    exempt: mx.array | None = None,
    count: int = 1,
) -> mx.array:
    """With `probability`, remove every token of at least `threshold` but the least likely of them: (B, V) -> (B, V).

    Nothing is removed where fewer than `count` tokens would be left.

    "Exclude top choices", by p-e-w, has no paper; this is the filter of text-generation-webui and llama.cpp.
    `key` decides by one draw a row. Tokens marked in `exempt` (V,), booleans, are never removed, and never the one kept
    in place of the others: line breaks and end tokens, without which no text would end.
    """
    probabilities = mx.softmax(logits, axis=-1)
    top = probabilities >= threshold
    if exempt is not None:
        top = top & ~exempt
    least = mx.argmin(mx.where(top, probabilities, float("inf")), axis=-1, keepdims=True)  # (B, 1)
    # A single token above the threshold is also the least likely of them, and is kept.
    gone = top & (mx.arange(logits.shape[-1]) != least)
    if count > 1:
        gone = gone & (((logits > NEG_INF) & ~gone).sum(axis=-1, keepdims=True) >= count)
    thrown = mx.random.uniform(shape=(logits.shape[0], 1), key=key) < probability
    return mx.where(gone & thrown, NEG_INF, logits)


def surprise(logits: mx.array) -> mx.array:
    """The surprise of each token in bits, (…, V) -> (…, V)."""
    return -logprobs(logits) / math.log(2)


class Mirostat:
    """Mirostat 2: keeps the surprise of one sequence near the target `tau` by a bound that starts at twice the target.

    Surprise is -log2 of a probability, in bits. Basu et al., 2021, "Mirostat: A Neural Text Decoding Algorithm that
    Directly Controls Perplexity", without its estimate of an exponent.
    After each token the bound falls by `eta` times the token's surprise above the target. This surprise is measured in
    the distribution before the bound, as in the paper; llama.cpp measures it after the others were removed.
    """

    def __init__(self, tau: float, eta: float) -> None:
        self.tau, self.eta = tau, eta
        self.bound = mx.array(2.0 * tau)
        self._surprise: mx.array | None = None  # (1, V), of the last distribution

    def __call__(self, logits: mx.array) -> mx.array:
        """Keep the logits within the bound, and always the largest: (1, V) -> (1, V)."""
        self._surprise = surprise(logits)
        best = logits.max(axis=-1, keepdims=True)
        return mx.where((self._surprise <= self.bound) | (logits == best), logits, NEG_INF)

    def update(self, token: mx.array) -> None:
        """Update the bound after the token (1,) that was drawn from the last distribution, evaluated or not."""
        assert self._surprise is not None, "a token is drawn from a distribution"
        # The bound keeps growing while tokens are likely; above the largest surprise it has no effect.
        error = mx.take(self._surprise[0], token)[0] - self.tau
        self.bound = self.bound - self.eta * error


def sampler(settings: Settings) -> Callable[[mx.array], mx.array]:
    """A function from logits (…, V) to ids (…) that applies the temperature and the filters. With a seed its draws repeat."""
    processors, record = draw_processors(settings), record_of(settings)
    key = first_key(settings.seed)

    def draw(logits: mx.array) -> mx.array:
        nonlocal key
        key, use = mx.random.split(key)
        stages = list(stages_of(logits, processors))
        last = stages[-1].logits
        tokens = greedy(last) if settings.greedy else mx.random.categorical(last, key=use)
        if record is not None:
            record(stages, tokens)
        return tokens

    return draw


def first_key(seed: int | None) -> mx.array:
    """The random key of a seed, of a random one where it is None."""
    return mx.random.key(ranks.random_seed() if seed is None else seed)


def greedy(logits: mx.array) -> mx.array:
    """The likeliest token: (B, V) -> (B,)."""
    return mx.argmax(logits, axis=-1)


# The settings that remove tokens for good, for the message where none is left.
REMOVING = (
    *("logit_bias", "banned", "no_repeat_ngram_size", "min_tokens"),
    *("json_schema", "regex", "grammar"),
)


class TokenSampler:
    """Samples the tokens of one sequence, which never depend on other sequences.

    `choose` and `update` alternate, or `choose` is one call ahead where it needs no last token. `update` is told every
    token in order, also those that the caller chose by `scores` or `probabilities`.

    `is_greedy`: every token is the likeliest one of the model. `needs_last_token`: a token is chosen only after `update`
    has been told the one before.
    """

    def __init__(
        self, settings: Settings, processors: LogitsProcessors, filters: Sequence[PluginSampler] = ()
    ) -> None:
        """Sample by the sequence's logits processors, then by temperature, filters and plugins' `filters`."""
        self.settings, self.processors, self.mask = settings, processors, processors.mask
        self.filters = () if settings.greedy else tuple(filters)
        self._exempt = marked(processors.vocab, (*processors.constraints.eos_ids, *processors.strings.lines))
        self._mirostat: Mirostat | None = None
        if settings.mirostat and not settings.greedy:
            self._mirostat = Mirostat(settings.mirostat_tau, settings.mirostat_eta)
        self._chain = (*processors.chain, *self._draws())
        self._record = record_of(settings)
        self._updated = 0  # tokens that `update` was told
        # The largest of the last scores after what may remove all: each custom function by its label, the processors ("").
        self._best: list[tuple[str, mx.array]] = []
        self._stages: list[LogitsStage] | None = None  # of the last probabilities, where choices are recorded
        # `_best` and `_stages` of each token that was chosen and not yet passed to `update`, or why none could be.
        self._unread = deque[tuple[list[tuple[str, mx.array]], list[LogitsStage] | None] | ZooError]()
        if not settings.greedy:
            self._split(first_key(settings.seed))
        self.is_greedy = settings.greedy and not processors.chain and self._record is None
        self.needs_last_token = processors.needs_last_token or any(each.stateful for each in self.filters)

    def scores(self, logits: mx.array) -> mx.array:
        """The logits of which the next token is drawn, or of which it is the largest: (1, V) -> (1, V), float32.

        Asked again before the next token is chosen or taken, they are the same.
        """
        return self._run(logits)[-1].logits

    def probabilities(self, logits: mx.array) -> mx.array:
        """The probabilities by which the caller draws the next token: (1, V) -> (V,)."""
        stages = self._run(logits)
        self._stages = None if self._record is None else stages
        return mx.softmax(stages[-1].logits[0], axis=-1)

    def choose(self, logits: mx.array) -> mx.array:
        """The next token, not yet evaluated: logits (1, V) -> (1,). `update` raises the error of a custom function."""
        if self.is_greedy:
            return greedy(logits)
        try:
            stages = self._run(logits)
        except ZooError as error:  # which is of this sequence alone, and not of those beside it
            self._unread.append(error)
            return greedy(logits)
        last = stages[-1].logits
        token = greedy(last) if self.settings.greedy else mx.random.categorical(last, key=self.key)
        self._unread.append((self._best, None if self._record is None else stages))
        self._follow(token)
        return token

    def update(self, token: int) -> None:
        """The token that was chosen. PromptError where the settings removed every token, and none could be."""
        if self.is_greedy:
            return
        unread = self._unread.popleft() if self._unread else (self._best, self._stages)
        if isinstance(unread, ZooError):
            raise unread
        best, stages = unread
        for name, largest in best:
            if not largest.item() > NEG_INF:  # or a sampler's NaN
                removing = [f"`{each}`" for each in REMOVING if getattr(self.settings, each)]
                names = name or ", ".join(removing) or "generation_config.json forbids all"
                raise PromptError(f"token {self._updated + 1}: no token is left to choose: {names}")
        if self._record is not None and stages is not None:
            self._record(stages, mx.array([token]))
        self.processors.update(token)
        for each in self.filters:
            each.update(token)
        self._updated += 1
        if self._updated > self.processors.count:  # chosen elsewhere
            self._follow(mx.array([token]))

    def _run(self, logits: mx.array) -> list[LogitsStage]:
        """The stages of the chain for the next token, in order; each has logits (1, V)."""
        stages = list(stages_of(logits, self._chain))
        self._best = []
        for processor, before, stage in zip(self._chain, stages, stages[1:], strict=False):
            function = processor.function
            custom = function.function if isinstance(function, CustomProcessor) else function
            if isinstance(custom, CustomFunction):
                left = before.logits.max() > NEG_INF  # else it did not remove the last ones
                self._best.append((custom.label, mx.where(left, stage.logits.max(), 0)))
        if self.processors.removes:
            self._best.append(("", stages[len(self.processors.chain)].logits.max()))
        return stages

    def _draws(self) -> Iterator[LogitsProcessor]:
        """What makes the distribution that is drawn from, in its order; nothing where the choice is greedy."""
        settings = self.settings
        if settings.greedy:
            return
        yield from draw_processors(settings)
        if chance := settings.xtc_probability:
            least, exempt, count = settings.xtc_threshold, self._exempt, settings.min_tokens_to_keep
            yield LogitsProcessor(
                "xtc_probability",
                lambda logits: xtc(logits, chance, least, key=self._coin, exempt=exempt, count=count),
            )
        for each in self.filters:
            yield LogitsProcessor(each.name, each)
        if self._mirostat is not None:
            yield LogitsProcessor("mirostat", self._mirostat)

    def _follow(self, token: mx.array) -> None:
        """What the next choice needs of a token (1,), evaluated or not."""
        self.processors.follow(token)
        if self._mirostat is not None:
            self._mirostat.update(token)
        if not self.settings.greedy:
            self._split(self._key)

    def _split(self, key: mx.array) -> None:
        # `key` is that of the next token, also for a caller that draws it by itself.
        self._key, self.key, self._coin = mx.random.split(key, 3)


def sampler_of(
    loaded: Loaded, settings: Settings, constraints: Constraints, guidance: Guidance | None = None
) -> TokenSampler:
    """The sampler of one sequence of a loaded model; the errors are those of `processors_of` and `filters_from`."""
    processors = processors_of(loaded, settings, constraints, guidance)
    return TokenSampler(settings, processors, filters_from(loaded.registry, settings))
