"""`TokenSampler`: the tokens of one sequence, chosen from its logits; `sampler`: a draw for every row of logits (B, V).

Axes: V vocabulary.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import mlx.core as mx

from zoo.errors import ZooError
from zoo.generation.generation_config import Constraints
from zoo.generation.sampling.filters import Mirostat, PluginFilter, draw_processors, filters_of, xtc
from zoo.generation.sampling.logits import NEG_INF, LogitsProcessor, LogitsStage, marked, record_of, stages_of
from zoo.generation.sampling.logits_processors import LogitsProcessors, processors_of
from zoo.generation.settings import Settings
from zoo.loading import Loaded


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
    return mx.random.key(secrets.randbits(63) if seed is None else seed)


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
        self, settings: Settings, processors: LogitsProcessors, filters: Sequence[PluginFilter] = ()
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
        # The largest of the last scores after what may remove all: the processors (""), each plugin's filter by its name.
        self._best: dict[str, mx.array] = {}
        self._stages: list[LogitsStage] | None = None  # of the last probabilities, where choices are recorded
        # `_best` and `_stages` of each token that was chosen and not yet passed to `update`.
        self._unread = deque[tuple[dict[str, mx.array], list[LogitsStage] | None]]()
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
        """The next token, not yet evaluated: logits (1, V) -> (1,)."""
        if self.is_greedy:
            return greedy(logits)
        stages = self._run(logits)
        last = stages[-1].logits
        token = greedy(last) if self.settings.greedy else mx.random.categorical(last, key=self.key)
        self._unread.append((self._best, None if self._record is None else stages))
        self._follow(token)
        return token

    def update(self, token: int) -> None:
        """The token that was chosen. ZooError where every token was removed, and none could be."""
        if self.is_greedy:
            return
        best, stages = self._unread.popleft() if self._unread else (self._best, self._stages)
        for name, largest in best.items():
            if not largest.item() > NEG_INF:  # or a sampler's NaN
                removing = [f"`{each}`" for each in REMOVING if getattr(self.settings, each)]
                names = name or ", ".join(removing) or "generation_config.json forbids all"
                raise ZooError(f"token {self._updated + 1}: no token is left to choose: {names}")
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
        processed = stages[len(self.processors.chain)].logits
        self._best = {"": processed.max()} if self.processors.removes else {}
        for processor, stage in zip(self._chain, stages[1:], strict=True):
            if isinstance(processor.function, PluginFilter):
                self._best[f"sampler {stage.name}"] = stage.logits.max()
        return stages

    def _draws(self) -> Iterator[LogitsProcessor]:
        """What makes the distribution that is drawn from, in its order; nothing where the choice is greedy."""
        settings = self.settings
        if settings.greedy:
            return
        yield from draw_processors(settings)
        if chance := settings.xtc_probability:
            least, exempt = settings.xtc_threshold, self._exempt
            yield LogitsProcessor(
                "xtc_probability",
                chance,
                lambda logits: xtc(logits, chance, least, key=self._coin, exempt=exempt),
            )
        for each in self.filters:
            yield LogitsProcessor(each.name, None, each)
        if self._mirostat is not None:
            yield LogitsProcessor("mirostat", settings.mirostat, self._mirostat)

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


def sampler_of(loaded: Loaded, settings: Settings, constraints: Constraints) -> TokenSampler:
    """The sampler of one sequence of a loaded model.

    PromptError for a string that the tokenizer cannot encode, or a plugin's sampler that does not take its settings.
    """
    filters = filters_of(loaded.registry, settings.samplers)
    return TokenSampler(settings, processors_of(loaded, settings, constraints), filters)
