"""`TextStream`: turns tokens into steps, with the text that each token makes certain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from zoo.generation.loop.prompt import eos_ids_of
from zoo.generation.loop.step import Step
from zoo.generation.loop.stop import StopText
from zoo.loading import Loaded

# The arguments of `TextStream.add`: a token's id, its log-probability, and the alternatives' log-probabilities.
TokenWithLogprobs = tuple[int, float | None, Mapping[int, float] | None]


class TextStream:
    """Turns the tokens of one answer, at most `limit`, into steps.

    Text is decoded incrementally: a step has what became certain with its token. An end token, or one of
    `stop_tokens`, ends the answer and has no text of its own; so does one of the `stop` texts, or what `stop_regex`
    matches, which is left out. The last step has the finish reason. Where the model has no tokenizer all texts are empty.

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
        stop_regex: str | None = None,
    ) -> None:
        """PromptError for an expression that is none."""
        self.eos_ids = eos_ids_of(loaded).union(stop_tokens)
        self.limit = limit
        self.count = 0
        self._detokenizer = loaded.tokenizer.detokenizer() if loaded.tokenizer else None
        self._stop = StopText(stop, stop_regex)

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
            ended = ended or self._stop.found
        reason = "stop" if ended else "length" if last else None
        return Step(token, text, logprob, reason, alternatives=alternatives)

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
