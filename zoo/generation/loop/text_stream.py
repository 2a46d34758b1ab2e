"""`TextStream`: turns tokens into steps, with the text that each token makes certain.

Output that could be the start of a stop string is held back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from zoo.generation.loop.prompt import eos_ids_of
from zoo.generation.loop.step import Step
from zoo.loading import Loaded


class StopText:
    """Passes text on until one of `stops` appears, and sets `found` to it then. What was found is not passed on."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops = [stop for stop in stops if stop]
        self.pending = ""
        self.found: str | None = None

    def add(self, text: str, last: bool = False) -> str:
        """The text that cannot be part of a stop string; with `last`, all pending text."""
        self.pending += text
        matches = [(place, stop) for stop in self.stops if (place := self.pending.find(stop)) >= 0]
        if matches:
            start, self.found = min(matches)
            return self.pending[:start]
        keep = 0 if last else partial_match(self.pending, self.stops)
        passed = self.pending[: len(self.pending) - keep]
        self.pending = self.pending[len(passed) :]
        return passed


def partial_match(text: str, targets: Iterable[str]) -> int:
    """The most characters at the end of a text that begin one of the targets without being all of it."""
    longest = 0
    for target in targets:
        sizes = range(min(len(target) - 1, len(text)), longest, -1)
        longest = next((size for size in sizes if text.endswith(target[:size])), longest)
    return longest


# The arguments of `TextStream.add`: a token's id, its log-probability, and the alternatives' log-probabilities.
TokenWithLogprobs = tuple[int, float | None, Mapping[int, float] | None]


class TextStream:
    """Turns the tokens of one answer, at most `limit`, into steps.

    Text is decoded incrementally: a step has what became certain with its token. An end token, or one of
    `stop_tokens`, ends the answer and has no text of its own; so does one of the `stop` texts, which is left
    out. The last step has the finish reason. Where the model has no tokenizer all texts are empty.

    >>> text = TextStream(loaded, limit=16)  # doctest: +SKIP
    >>> for token in tokens:  # doctest: +SKIP
    ...     step = text.add(token)
    ...     yield step
    ...     if step.finish_reason:
    ...         return
    """

    def __init__(
        self,
        loaded: Loaded,
        limit: int,
        stop: Sequence[str] = (),
        stop_tokens: Sequence[int] = (),
    ) -> None:
        self.eos_ids = eos_ids_of(loaded).union(stop_tokens)
        self.limit = limit
        self.count = 0
        self._detokenizer = loaded.tokenizer.detokenizer() if loaded.tokenizer else None
        self._stop = StopText(stop)

    def add(
        self, token: int, logprob: float | None = None, alternatives: Mapping[int, float] | None = None
    ) -> Step:
        """The step of the next token; it has a `finish_reason` when the answer ends with it."""
        self.count += 1
        ended = token in self.eos_ids
        last = ended or self.count == self.limit
        text = ""
        if self._detokenizer is not None:
            text = "" if ended else self._detokenizer.add(token)
            text = self._stop.add(text + (self._detokenizer.finish() if last else ""), last)
            ended = ended or self._stop.found is not None
        reason = "stop" if ended else "length" if last else None
        return Step(token, text, logprob, reason, alternatives=alternatives, stop=self._stop.found)

    def rest(self) -> str:
        """The text that is still held back, when the answer ends here."""
        finished = self._detokenizer.finish() if self._detokenizer is not None else ""
        return self._stop.add(finished, last=True)

    def steps(self, tokens: Iterable[int | TokenWithLogprobs]) -> Iterator[Step]:
        """The steps of these tokens, ids or with log-probabilities, up to the one that ends the answer."""
        for token in tokens:
            step = self.add(*token) if isinstance(token, tuple) else self.add(token)
            yield step
            if step.finish_reason is not None:
                return
