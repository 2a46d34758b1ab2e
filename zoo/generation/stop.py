"""Stop texts in a stream: text that may be the start of one is kept back until it is known not to be."""

from __future__ import annotations

from collections.abc import Sequence


class StopText:
    """Passes text on until one of `stops` appears, and sets `found` then. The stop text itself is not passed on."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops = [stop for stop in stops if stop]
        self.pending = ""
        self.found = False

    def add(self, text: str, last: bool = False) -> str:
        """The text that is now certain to come before any stop; all that is pending when this is the `last`."""
        self.pending += text
        starts = [start for stop in self.stops if (start := self.pending.find(stop)) >= 0]
        if starts:
            self.found = True
            return self.pending[: min(starts)]
        keep = 0 if last else max((self._overlap(stop) for stop in self.stops), default=0)
        passed, self.pending = (
            self.pending[: len(self.pending) - keep],
            self.pending[len(self.pending) - keep :],
        )
        return passed

    def _overlap(self, stop: str) -> int:
        """The number of characters at the end of the pending text that are the beginning of `stop`."""
        return next(
            (
                n
                for n in range(min(len(stop) - 1, len(self.pending)), 0, -1)
                if self.pending.endswith(stop[:n])
            ),
            0,
        )
