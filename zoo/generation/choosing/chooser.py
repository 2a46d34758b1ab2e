"""`Chooser`: the tokens of one sequence, chosen from its logits. Axes: V vocabulary."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import mlx.core as mx

from zoo.errors import ZooError
from zoo.generation.choosing.bans import Endings, Ngrams
from zoo.generation.choosing.dry import Dry
from zoo.generation.choosing.filters import narrowing, xtc
from zoo.generation.choosing.forced import Constraints
from zoo.generation.choosing.logits import REMOVED, removed
from zoo.generation.choosing.mirostat import Mirostat
from zoo.generation.choosing.penalties import Penalties
from zoo.generation.choosing.plugins import PluginFilter
from zoo.generation.choosing.sampling import first_key, greedy
from zoo.generation.choosing.spelled import Spelled

if TYPE_CHECKING:
    import numpy as np

    from zoo.generation.settings import Settings


class Mask(Protocol):
    """Which tokens a grammar allows next, as bits: uint32 (ceil(V/32),), the lowest id in the lowest bit.

    `done`: nothing but an end token can follow.
    """

    @property
    def done(self) -> bool: ...
    def allowed(self) -> np.ndarray: ...
    def took(self, token: int) -> None: ...


class Chooser:
    """Chooses the tokens of one sequence, which never depend on other sequences.

    `choose` and `took` alternate, or `choose` is one call ahead where it does not wait: `took` is told every token in
    order, also those that were chosen elsewhere from the distribution of `scores`.

    `plain`: every token is the likeliest one of the model. `waits`: a token is chosen only after `took` has been told
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
            presence=settings.presence_penalty,
            frequency=settings.frequency_penalty,
        )
        self._dry = _dry(settings, spelled, given) if settings.dry_multiplier else None
        self._always = _marked(
            vocab, (*self.forced.always, *(run[0] for run in spelled.banned if len(run) == 1))
        )
        self._bans = _bans((*self.forced.never, *spelled.banned), settings.no_repeat_ngram_size, given)
        self._narrowing = [narrow for _, _, narrow in narrowing(settings)]
        self._exempt = _marked(vocab, (*self.forced.ends, *spelled.lines))
        self._mirostat = (
            Mirostat(settings.mirostat_tau, settings.mirostat_eta)
            if settings.mirostat and not settings.greedy
            else None
        )
        self._chosen = self._taken = 0
        self._best: mx.array | None = None  # the largest of the last scores, where all may be removed
        self._unread = deque[mx.array | None]()  # that of each token chosen and not yet taken
        if not settings.greedy:
            self._roll(first_key(settings.seed))
        biased = (settings.logit_bias or {}).values()
        self._removes = self._always is not None or bool(self._bans) or mask is not None or REMOVED in biased
        changes = self._bias is not None or self._penalties.active or self._dry is not None
        self.plain = settings.greedy and not (changes or self._removes or self.forced.active)
        self.waits = (
            self._dry is not None
            or bool(self._bans)
            or mask is not None
            or any(narrow.stateful for narrow in self.filters)
        )

    @property
    def key(self) -> mx.array:
        """The random key of the next token, for a caller that draws it by itself."""
        return self._draw

    def scores(self, logits: mx.array) -> mx.array:
        """The logits of which the next token is drawn, or of which it is the largest: (1, V) -> (1, V), float32.

        Asked again before the next token is chosen or taken, they are the same.
        """
        logits = self._allowed(logits.astype(mx.float32))
        self._best = logits.max() if self._removes else None
        if self.settings.greedy:
            return logits
        logits = logits / self.settings.temperature
        for narrow in self._narrowing:
            logits = narrow(logits)
        if self.settings.xtc_probability:
            settings = self.settings
            logits = xtc(
                logits,
                settings.xtc_probability,
                settings.xtc_threshold,
                key=self._coin,
                exempt=self._exempt,
            )
        for narrow in self.filters:
            logits = narrow(logits)
        return logits if self._mirostat is None else self._mirostat(logits)

    def choose(self, logits: mx.array) -> mx.array:
        """The next token, not yet evaluated: logits (1, V) -> (1,)."""
        if self.plain:
            return greedy(logits)
        scores = self.scores(logits)
        token = greedy(scores) if self.settings.greedy else mx.random.categorical(scores, key=self._draw)
        self._unread.append(self._best)
        self._follow(token)
        return token

    def took(self, token: int) -> None:
        """The token that was chosen. ZooError where every token was removed, and none could be."""
        if self.plain:
            return
        best = self._unread.popleft() if self._unread else self._best
        if best is not None and best.item() == REMOVED:
            raise ZooError(
                f"token {self._taken + 1}: no token is left to choose: {', '.join(self._removers)}"
            )
        for told in (
            *self._bans,
            *self.filters,
            *(part for part in (self._dry, self.mask) if part is not None),
        ):
            told.took(token)
        self._taken += 1
        if self._taken > self._chosen:  # chosen elsewhere
            self._follow(mx.array([token]))

    def _allowed(self, logits: mx.array) -> mx.array:
        """The logits after bias, penalties and all that removes tokens for good, (1, V) -> (1, V)."""
        if self._bias is not None:
            logits = logits + self._bias
        logits = self._penalties(logits)
        if self._dry is not None:
            logits = self._dry(logits)
        if self._always is not None:
            logits = mx.where(self._always, REMOVED, logits)
        if self._bans:
            logits = removed(logits, sorted(set[int]().union(*(ban.completing() for ban in self._bans))))
        if self.mask is None:
            return self.forced.by_count(logits, self._chosen)
        from zoo.generation.grammar import masked

        allowed = self.mask.allowed()
        # A text that is whole by the grammar ends, however short it is.
        over = _only(allowed, self.forced.ends)
        return masked(self.forced.by_count(logits, self._chosen, ends=over), allowed)

    def _follow(self, token: mx.array) -> None:
        """What the next choice needs of a token (1,), evaluated or not."""
        self._penalties.took(token)
        if self._mirostat is not None:
            self._mirostat.took(token)
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


def _marked(vocab: int, tokens: Sequence[int]) -> mx.array | None:
    """The tokens as booleans (V,), None for none."""
    known = [token for token in tokens if token < vocab]
    if not known:
        return None
    marked = mx.zeros(vocab, mx.bool_)
    marked[mx.array(known)] = True
    return marked


def _only(bits: np.ndarray, tokens: Collection[int]) -> bool:
    """Whether the bits of a mask allow none but some tokens."""
    rest = bits.copy()
    for token in tokens:
        if token // 32 < rest.size:
            rest[token // 32] &= ~(1 << token % 32) & 0xFFFFFFFF
    return not rest.any()


def _bans(runs: Sequence[Sequence[int]], ngram: int, given: Sequence[int]) -> list[Endings | Ngrams]:
    several = [run for run in runs if len(run) > 1]
    return [*([Endings(several, given)] if several else []), *([Ngrams(ngram, given)] if ngram else [])]


def _dry(settings: Settings, spelled: Spelled, given: Sequence[int]) -> Dry:
    return Dry(
        settings.dry_multiplier,
        settings.dry_base,
        settings.dry_allowed_length,
        spelled.breakers,
        given,
    )
