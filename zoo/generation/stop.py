"""Stop texts in a stream: what could be the start of one is held back until it is known not to be."""

from __future__ import annotations

from collections.abc import Sequence


class StopText:
    """Passes text on until one of `stops` appears; `found` then says so. The stop text itself is not passed on."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops = [stop for stop in stops if stop]
        self.held = ""
        self.found = False

    def add(self, text: str, last: bool = False) -> str:
        """The text that is now certain to come before any stop; all that is held when this is the `last`."""
        self.held += text
        starts = [start for stop in self.stops if (start := self.held.find(stop)) >= 0]
        if starts:
            self.found = True
            return self.held[: min(starts)]
        keep = 0 if last else max((self._overlap(stop) for stop in self.stops), default=0)
        passed, self.held = self.held[: len(self.held) - keep], self.held[len(self.held) - keep :]
        return passed

    def _overlap(self, stop: str) -> int:
        """How many characters at the end of what is held are the beginning of `stop`."""
        return next(
            (n for n in range(min(len(stop) - 1, len(self.held)), 0, -1) if self.held.endswith(stop[:n])), 0
        )
