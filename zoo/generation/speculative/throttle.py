"""`DraftThrottle`: turns speculative decoding on or off by measured time a token."""

from __future__ import annotations

from collections import deque
from statistics import median

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
