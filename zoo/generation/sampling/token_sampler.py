"""`TokenSampler`: the tokens of one sequence, chosen from its logits. Axes: V vocabulary."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import mlx.core as mx

from zoo.architecture.shared_settings import CONSTRAINTS
from zoo.errors import ZooError
from zoo.generation.sampling.banned import BannedSequences, NoRepeatNgrams, marked
from zoo.generation.sampling.constraints import Constraints
from zoo.generation.sampling.draw import first_key, greedy
from zoo.generation.sampling.dry import Dry
from zoo.generation.sampling.filters import draw_processors, xtc
from zoo.generation.sampling.logits import NEG_INF, removed
from zoo.generation.sampling.mirostat import Mirostat
from zoo.generation.sampling.penalties import Penalties
from zoo.generation.sampling.plugin_samplers import PluginFilter
from zoo.generation.sampling.processors import LogitsProcessor, LogitsStage, record_of, stages_of
from zoo.generation.sampling.token_strings import Spelled

if TYPE_CHECKING:
    import numpy as np

    from zoo.generation.settings import Settings

CHECKPOINT = "generation_config.json"  # the name of a stage that the checkpoint asks for


class Mask(Protocol):
    """Which tokens a grammar allows next, as bits: uint32 (ceil(V/32),), the lowest id in the lowest bit.

    `done`: nothing but an end token can follow.
    """

    @property
    def done(self) -> bool: ...
    def allowed(self) -> np.ndarray: ...
    def update(self, token: int) -> None: ...


class TokenSampler:
    """Chooses the tokens of one sequence, which never depend on other sequences.

    `choose` and `update` alternate, or `choose` is one call ahead where it does not wait: `update` is told every token in
    order, also those that were chosen elsewhere from the distribution of `scores` or `probabilities`.

    `is_greedy`: every token is the likeliest one of the model. `needs_last_token`: a token is chosen only after `update` has been told
    the one before.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        vocab: int,
        given: Sequence[int] = (),
        ends: Collection[int] = (),
        limit: int = 0,
        forced: Constraints | None = None,
        mask: Mask | None = None,
        filters: Sequence[PluginFilter] = (),
        spelled: Spelled | None = None,
    ) -> None:
        """Choose among `vocab` tokens after the prompt `given`, at most `limit` times.

        `ends` are the tokens that end a text. `forced` has what a generation_config.json forbids and forces, but for the
        repetition penalty and n-grams, which `settings` has. `spelled` has what the settings name by texts.
        """
        self.settings, self.mask = settings, mask
        self.filters = () if settings.greedy else tuple(filters)
        spelled = spelled or Spelled()
        forced = forced or Constraints(ends=frozenset(ends), given=tuple(given), last=limit)
        self.forced = replace(forced, least=settings.min_tokens or forced.least, repetition=1.0, no_repeat=0)
        self._bias = _dense(vocab, settings.logit_bias) if settings.logit_bias else None
        self._penalties = Penalties(
            vocab,
            given,
            repetition_penalty=settings.repetition_penalty,
            context=settings.repetition_context_size,
            presence_penalty=settings.presence_penalty,
            frequency_penalty=settings.frequency_penalty,
        )
        self._dry = _dry(settings, spelled, given) if settings.dry_multiplier else None
        self._banned = _banned(vocab, spelled.banned, given)
        self._ngrams = (
            NoRepeatNgrams(settings.no_repeat_ngram_size, given) if settings.no_repeat_ngram_size else None
        )
        self._never = _banned(vocab, self.forced.banned, given)
        self._exempt = marked(vocab, (*self.forced.ends, *spelled.lines))
        self._mirostat = (
            Mirostat(settings.mirostat_tau, settings.mirostat_eta)
            if settings.mirostat and not settings.greedy
            else None
        )
        constraints = tuple(self._constraints())
        self._removing = len(constraints)  # the stage after which all tokens may be removed
        self._processors = (*constraints, *self._draws())
        self._record = record_of(settings)
        self._chosen = self._taken = 0
        # The largest of the last scores after what may remove all: the constraints (""), each sampler by its name.
        self._best: dict[str, mx.array] = {}
        self._stages: list[LogitsStage] | None = (
            None  # of the last probabilities, where the choices are recorded
        )
        # `_best` and `_stages` of each token that was chosen and not yet passed to `update`.
        self._unread = deque[tuple[dict[str, mx.array], list[LogitsStage] | None]]()
        if not settings.greedy:
            self._roll(first_key(settings.seed))
        bans = [ban for ban in (self._banned, self._ngrams, self._never) if ban is not None]
        biased = (settings.logit_bias or {}).values()
        self._removes = bool(bans) or mask is not None or NEG_INF in biased
        self.is_greedy = settings.greedy and not constraints and self._record is None
        self.needs_last_token = (
            self._dry is not None
            or any(ban.looks_back for ban in bans)
            or mask is not None
            or any(narrow.stateful for narrow in self.filters)
        )
        self._told = (*bans, *self.filters, *(part for part in (self._dry, mask) if part is not None))

    @property
    def key(self) -> mx.array:
        """The random key of the next token, for a caller that draws it by itself."""
        return self._draw

    def scores(self, logits: mx.array) -> mx.array:
        """The logits of which the next token is drawn, or of which it is the largest: (1, V) -> (1, V), float32.

        Asked again before the next token is chosen or taken, they are the same.
        """
        return self._chain(logits)[-1].logits

    def probabilities(self, logits: mx.array) -> mx.array:
        """The probabilities by which the caller draws the next token: (1, V) -> (V,)."""
        stages = self._chain(logits)
        self._stages = None if self._record is None else stages
        return mx.softmax(stages[-1].logits[0], axis=-1)

    def choose(self, logits: mx.array) -> mx.array:
        """The next token, not yet evaluated: logits (1, V) -> (1,)."""
        if self.is_greedy:
            return greedy(logits)
        stages = self._chain(logits)
        last = stages[-1].logits
        token = greedy(last) if self.settings.greedy else mx.random.categorical(last, key=self._draw)
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
                names = name or ", ".join(self._removers)
                raise ZooError(f"token {self._taken + 1}: no token is left to choose: {names}")
        if self._record is not None and stages is not None:
            self._record(stages, mx.array([token]))
        for told in self._told:
            told.update(token)
        self._taken += 1
        if self._taken > self._chosen:  # chosen elsewhere
            self._follow(mx.array([token]))

    def _chain(self, logits: mx.array) -> list[LogitsStage]:
        """The stages of the chain for the next token, in order; each has logits (1, V)."""
        stages = list(stages_of(logits, self._processors))
        self._best = {"": stages[self._removing].logits.max()} if self._removes else {}
        for processor, stage in zip(self._processors, stages[1:], strict=True):
            if isinstance(processor.function, PluginFilter):
                self._best[f"sampler {stage.name}"] = stage.logits.max()
        return stages

    def _constraints(self) -> Iterator[LogitsProcessor]:
        """Bias, penalties and all that removes tokens for good, in their order."""
        settings, forced = self.settings, self.forced
        if (bias := self._bias) is not None:
            yield LogitsProcessor("logit_bias", None, lambda logits: logits + bias)
        yield from self._penalties.processors
        if self._dry is not None:
            yield LogitsProcessor("dry_multiplier", settings.dry_multiplier, self._dry)
        if self._banned is not None:
            yield LogitsProcessor("banned", None, self._banned)
        if self._ngrams is not None:
            yield LogitsProcessor("no_repeat_ngram_size", settings.no_repeat_ngram_size, self._ngrams)
        if self._never is not None:
            yield LogitsProcessor(CHECKPOINT, None, self._never)
        if forced.least or forced.least_length:
            name = "min_tokens" if settings.min_tokens else CHECKPOINT
            yield LogitsProcessor(name, settings.min_tokens or None, self._long_enough)
        if forced.places:
            name = "target_language" if settings.target_language else CHECKPOINT
            yield LogitsProcessor(name, None, lambda logits: forced.by_place(logits, self._chosen))
        if (mask := self.mask) is not None:
            from zoo.generation.grammar import masked

            asked = (each.name for each in CONSTRAINTS if getattr(settings, each.name) is not None)
            name = next(asked, "grammar")
            yield LogitsProcessor(name, None, lambda logits: masked(logits, mask.allowed()))

    def _draws(self) -> Iterator[LogitsProcessor]:
        """What makes the distribution that is drawn from, in its order; nothing where the choice is greedy."""
        settings = self.settings
        if settings.greedy:
            return
        yield from draw_processors(settings)
        if settings.xtc_probability:
            yield LogitsProcessor("xtc_probability", settings.xtc_probability, self._without_top)
        for narrow in self.filters:
            yield LogitsProcessor(narrow.name, None, narrow)
        if self._mirostat is not None:
            yield LogitsProcessor("mirostat", settings.mirostat, self._mirostat)

    def _long_enough(self, logits: mx.array) -> mx.array:
        """The logits without end tokens while the text is too short, unless a grammar allows nothing else."""
        if not self.forced.too_short(self._chosen):
            return logits
        # A text that is whole by the grammar ends, however short it is.
        over = self.mask is not None and _only(self.mask.allowed(), self.forced.ends)
        return logits if over else removed(logits, tuple(self.forced.ends))

    def _without_top(self, logits: mx.array) -> mx.array:
        settings = self.settings
        return xtc(
            logits, settings.xtc_probability, settings.xtc_threshold, key=self._coin, exempt=self._exempt
        )

    def _follow(self, token: mx.array) -> None:
        """What the next choice needs of a token (1,), evaluated or not."""
        self._penalties.update(token)
        if self._mirostat is not None:
            self._mirostat.update(token)
        self._chosen += 1
        if not self.settings.greedy:
            self._roll(self._key)

    def _roll(self, key: mx.array) -> None:
        self._key, self._draw, self._coin = mx.random.split(key, 3)

    @property
    def _removers(self) -> list[str]:
        """The settings that remove tokens, for a message."""
        names = (
            "logit_bias",
            "banned",
            "no_repeat_ngram_size",
            "min_tokens",
            "json_schema",
            "regex",
            "grammar",
        )
        asked = [f"`{name}`" for name in names if getattr(self.settings, name)]
        return asked or ["generation_config.json forbids all"]


def _dense(vocab: int, values: Mapping[int, float]) -> mx.array:
    """Values of tokens as an array (V,), zero for the others."""
    return mx.zeros(vocab).at[mx.array(list(values))].add(mx.array(list(values.values())))


def _only(bits: np.ndarray, tokens: Collection[int]) -> bool:
    """Whether the bits of a mask allow none but some tokens."""
    rest = bits.copy()
    for token in tokens:
        if token // 32 < rest.size:
            rest[token // 32] &= ~(1 << token % 32) & 0xFFFFFFFF
    return not rest.any()


def _banned(vocab: int, runs: Sequence[Sequence[int]], given: Sequence[int]) -> BannedSequences | None:
    return BannedSequences(vocab, runs, given) if runs else None


def _dry(settings: Settings, spelled: Spelled, given: Sequence[int]) -> Dry:
    return Dry(
        settings.dry_multiplier,
        settings.dry_base,
        settings.dry_allowed_length,
        spelled.breakers,
        given,
    )
