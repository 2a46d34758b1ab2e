"""Whether drafting pays: the measured time of a token with drafts, against that of one without."""

from __future__ import annotations

from collections import deque
from statistics import median

WINDOW = 16  # drafted passes that are judged together
TRIAL = 8  # of them before the first judgement
PLAIN = 8  # passes without drafts whose median counts
STALE = 128  # drafted passes after which the time without drafts is measured again: texts grow
PAUSE, LONGEST_PAUSE = 32, 512  # passes without drafts before another trial, doubled by each that fails


class DraftThrottle:
    """Decides before each pass of one text whether to draft for it.

    A drafted pass takes longer than one over a single token, and gives 1 + (accepted drafts) tokens. Drafting pays while

        median time of a drafted pass / mean tokens of it < median time of a pass without drafts

    over the last 16 drafted passes and the last 8 others. When it does not, drafting pauses for 32 passes and then has
    a trial of 8; each trial that fails doubles the pause, up to 512 passes, and one that pays sets it back to 32.
    The first pass of a text is not measured: it may compile kernels. `always`: draft whatever the times are, so that
    what is drafted does not depend on the clock.
    """

    def __init__(self, *, always: bool = False) -> None:
        self.always = always
        self.plain: deque[float] = deque(maxlen=PLAIN)
        self.drafted: deque[tuple[float, int]] = deque(maxlen=WINDOW)
        self.passes = 0
        self.since_plain = 0  # drafted passes since one without drafts
        self.paused = 0  # passes without drafts that are still to come
        self.pause = PAUSE

    @property
    def off(self) -> bool:
        """Whether drafting pauses."""
        return self.paused > 0

    def wants(self) -> bool:
        """Whether to draft for the next pass."""
        if self.always:
            return True
        if self.paused:
            return False
        # Without a measure of the other kind nothing can be judged.
        judged = len(self.drafted) >= TRIAL
        return not (judged and (not self.plain or self.since_plain >= STALE))

    def took(self, seconds: float, tokens: int, drafts: int) -> None:
        """Count a pass that took so long, gave so many tokens, and verified so many drafts."""
        self.passes += 1
        if self.passes == 1:
            return
        if not drafts:
            self.plain.append(seconds)
            self.since_plain = 0
            self.paused = max(0, self.paused - 1)
        else:
            self.drafted.append((seconds, tokens))
            self.since_plain += 1
        if not self.always and not self.paused and len(self.drafted) >= TRIAL and self.plain:
            self._judge()

    def _judge(self) -> None:
        """Pause when the passes with drafts were slower a token."""
        tokens = sum(tokens for _, tokens in self.drafted) / len(self.drafted)
        if median(seconds for seconds, _ in self.drafted) / tokens < median(self.plain):
            if len(self.drafted) == WINDOW:
                self.pause = PAUSE
            return
        self.paused, self.pause = self.pause, min(2 * self.pause, LONGEST_PAUSE)
        self.drafted.clear()
