"""What verifying drafts needs: rejection sampling, the caches rolled back, and whether drafts save time.

Rejection sampling gives the text the distribution of the target model alone. Its functions are pure, on probabilities.
Axes: V vocabulary. p is the target's distribution of a token, q the one that the draft was sampled from (Leviathan et
al., 2023, section 2.3; Chen et al., 2023, algorithm 2).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import Any

import mlx.core as mx

from zoo.cache import Cache


def accept(p: mx.array, q: mx.array, token: mx.array, key: mx.array) -> tuple[mx.array, mx.array]:
    """Whether a token sampled from q is accepted, (), and the token to use, (): itself or one sampled from the residual.

    p and q are (V,), `token` () is an id with q > 0. It is accepted with probability min(1, p / q). The token to use then
    has the distribution p, whatever q is. Nothing is evaluated.
    """
    for_test, for_draw = mx.random.split(key)
    uniform = mx.random.uniform(key=for_test)  # in [0, 1): a token with p = 0 is never accepted
    accepted = uniform * q[token] < p[token]
    other = mx.random.categorical(mx.log(residual(p, q)), key=for_draw)
    return accepted, mx.where(accepted, token, other)


def residual(p: mx.array, q: mx.array) -> mx.array:
    """The distribution that replaces a rejected token: max(p − q, 0) / Σ max(p − q, 0), (V,) and (V,) -> (V,).

    It is p where q equals p up to rounding, and so tokens are only rejected by rounding.
    """
    rest = mx.maximum(p - q, 0)
    total = rest.sum()
    return mx.where(total > 0, rest / mx.where(total > 0, total, 1), p)


class Rollback:
    """The plain caches of one text (`Model.plain_caches`), before a pass that may be undone in part.

    Caches that can trim drop their last columns. Others (recurrent states, windows) return to their state at the
    checkpoint, and then all caches do, so that they hold the same tokens: the next pass reads the accepted ones again.
    """

    def __init__(self, caches: Sequence[Cache]) -> None:
        self.caches = caches
        self._snapshots: list[Any] = []  # None for a cache that trims

    def checkpoint(self, tokens: int | None = None) -> None:
        """Remember the state of the caches before one pass over so many tokens (None: before several passes)."""
        self._snapshots = []
        for cache in self.caches:
            trims = cache.trims or (tokens is not None and cache.takes_back(tokens))
            self._snapshots.append(None if trims else cache.snapshot())

    def keep(self, accepted: int, read: int) -> int:
        """Keep the first `accepted` of the `read` tokens since the checkpoint; returns how many the caches still hold.

        That is `accepted`, or 0 where a cache could only return to the checkpoint.
        """
        if accepted < read:
            if any(snapshot is not None for snapshot in self._snapshots):
                accepted = 0
            for cache, snapshot in zip(self.caches, self._snapshots, strict=True):
                if snapshot is None:
                    cache.trim(read - accepted)
                else:
                    cache.restore(snapshot)
        self._snapshots = []
        return accepted


def can_roll_back(caches: Sequence[Any]) -> bool:
    """Whether each of a model's plain caches trims or restores."""
    return all(isinstance(cache, Cache) and (cache.trims or cache.restores) for cache in caches)


WINDOW = 16  # drafted passes that are compared
TRIAL = 8  # of them before the first comparison
UNDRAFTED = 8  # passes without drafts that are compared
STALE = 128  # drafted passes after which the time without drafts is measured again, because texts grow
PAUSE, LONGEST_PAUSE = 32, 512  # passes without drafts before another trial, doubled by each that fails


class DraftThrottle:
    """Decides before each pass of one text whether to draft for it.

    A drafted pass takes longer than one over a single token, and gives 1 + (accepted drafts) tokens. Drafting goes on while

        median time of a drafted pass / mean tokens of it < median time of a pass without drafts

    over the last 16 drafted passes and the last 8 others. Otherwise it pauses for 32 passes and then has a trial of 8.
    Each trial that fails doubles the pause, up to 512 passes; one that succeeds sets it back to 32. The first pass of a
    text is not measured: it may compile kernels. `always`: draft whatever the times are, so that drafts do not depend on
    the clock.
    """

    def __init__(self, *, always: bool = False) -> None:
        self.always = always
        self.undrafted: deque[float] = deque(maxlen=UNDRAFTED)
        self.drafted: deque[tuple[float, int]] = deque(maxlen=WINDOW)
        self.passes = 0
        self.since_undrafted = 0  # drafted passes since the last one without drafts
        self.paused = 0  # passes without drafts that are still to come
        self.pause = PAUSE

    def should_draft(self) -> bool:
        """Whether to draft for the next pass."""
        if self.always:
            return True
        if self.paused:
            return False
        # After a trial, a pass without drafts is needed for comparison.
        stale = not self.undrafted or self.since_undrafted >= STALE
        return len(self.drafted) < TRIAL or not stale

    def update(self, seconds: float, tokens: int, drafts: int) -> None:
        """Add the measurement of a pass: its time, the tokens that it gave, and the drafts that it verified."""
        self.passes += 1
        if self.passes == 1:
            return
        if not drafts:
            self.undrafted.append(seconds)
            self.since_undrafted = 0
            self.paused = max(0, self.paused - 1)
        else:
            self.drafted.append((seconds, tokens))
            self.since_undrafted += 1
        if not self.always and not self.paused and len(self.drafted) >= TRIAL and self.undrafted:
            self._compare()

    def _compare(self) -> None:
        """Pause when drafted passes were slower a token."""
        tokens = sum(tokens for _, tokens in self.drafted) / len(self.drafted)
        if median(seconds for seconds, _ in self.drafted) / tokens < median(self.undrafted):
            if len(self.drafted) == WINDOW:
                self.pause = PAUSE
            return
        self.paused, self.pause = self.pause, min(2 * self.pause, LONGEST_PAUSE)
        self.drafted.clear()
