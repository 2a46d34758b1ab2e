"""`TextStream`: turns tokens into steps, with the text that each token makes certain.

Stop strings and stop expressions: output that could be the start of one is held back.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from zoo.errors import PromptError, ZooError
from zoo.generation.loop.prompt import eos_ids_of
from zoo.generation.loop.step import Step
from zoo.loading import Loaded

MOST_EXPRESSION = 4096  # characters: its library compiles slowly
MOST_EXPANDED = 2**16  # characters, with those that counts repeat: its library writes each of them out
_PARTS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{(\d+)?(?:,(\d+)?)?\}|.", re.DOTALL)
MOST_HELD = 4096  # characters that an expression may keep back; a longer match of it is not found
SECONDS = 2.0  # of processor time that looking for an expression may take in one text
MORE_SECONDS = 0.002  # that each character adds to what is left of them


class StopText:
    """Passes text on until one of `stops`, or a match of `expression`, appears, and sets `found` to it then.

    What was found is not passed on. An expression is searched for after each character, so that what is found does not
    depend on where tokens begin: the text ends with the first character that completes a match. `^` is the start of the
    whole text. PromptError for an invalid expression, and for one that matches before there is any text.
    """

    def __init__(self, stops: Sequence[str], expression: str | None = None) -> None:
        self.stops = [stop for stop in stops if stop]
        self.pending = ""
        self.found: str | None = None
        self._expression = None if expression is None else Expression(expression)

    def add(self, text: str, last: bool = False) -> str:
        """The text that cannot be part of a stop string; with `last`, all pending text."""
        self.pending += text
        found = [(place, stop) for stop in self.stops if (place := self.pending.find(stop)) >= 0]
        if self._expression is not None:
            match = self._expression.found(len(text), self.pending)
            found += [] if match is None else [match]
        if found:
            start, self.found = min(found)
            return self.pending[:start]
        keep = 0 if last else partial_match(self.pending, self.stops)
        if self._expression is not None and not last:
            keep = max(keep, self._expression.held(self.pending))
        passed = self.pending[: len(self.pending) - keep]
        self.pending = self.pending[len(passed) :]
        if self._expression is not None:
            self._expression.passed(passed)
        return passed


def partial_match(text: str, targets: Iterable[str]) -> int:
    """The most characters at the end of a text that begin one of the targets without being all of it."""
    longest = 0
    for target in targets:
        sizes = range(min(len(target) - 1, len(text)), longest, -1)
        longest = next((size for size in sizes if text.endswith(target[:size])), longest)
    return longest


def expanded_length(expression: str) -> int:
    """The length of a regular expression in which each part stands as often as a count, `{2,5}`, allows."""
    groups, last = [0], 0  # the lengths of the open groups, and of the part before a count
    for part in _PARTS.finditer(expression):
        if part[0] == "(":
            groups.append(0)
        elif part[0] == ")" and groups[1:]:
            last = groups.pop() + 1
            groups[-1] += last
        elif part[0].startswith("{") and part.lastindex:
            more = last * (max(int(part[2] or part[1]), 1) - 1)
            groups[-1] += more
            last += more
        else:
            groups[-1] += 1
            last = 1
    return sum(groups)


class Expression:
    """A regular expression of the `regex` library, looked for in text that is pending after text that was passed on."""

    def __init__(self, expression: str) -> None:
        import regex

        if len(expression) > MOST_EXPRESSION:
            raise PromptError(
                f"`stop_regex`: it has {len(expression)} characters, more than {MOST_EXPRESSION}"
            )
        if expanded_length(expression) > MOST_EXPANDED:
            raise PromptError(f"`stop_regex`: its counts repeat more than {MOST_EXPANDED} characters")
        try:
            self._pattern: Any = regex.compile(expression)
        except (regex.error, RecursionError) as error:
            raise PromptError(f"`stop_regex`: {error}") from None
        self._seconds = SECONDS  # that are left
        if self._search("", 0, 0) is not None:
            raise PromptError(
                f"`stop_regex`: {expression!r:.60} matches an empty text, so that nothing would be generated"
            )
        self._before = ""  # the end of what was passed on, for what an expression asks of the text before it

    def found(self, new: int, pending: str) -> tuple[int, str] | None:
        """The start in the pending text, and the text, of the first complete match; None without one.

        The last `new` characters of the pending text were added since the last call.
        """
        text, begin = self._before + pending, len(self._before)
        for end in range(len(text) - new + 1, len(text) + 1):
            self._seconds = min(SECONDS, self._seconds + MORE_SECONDS)
            match = self._search(text, begin, end)
            if match is not None:
                return match.start() - begin, match[0]
        return None

    def held(self, pending: str) -> int:
        """The number of characters at the end of the pending text with which a match may begin."""
        text = self._before + pending
        match = self._search(text, len(self._before), len(text), partial=True)
        return 0 if match is None else min(len(text) - match.start(), MOST_HELD)

    def passed(self, text: str) -> None:
        """This text was passed on: no match begins in it."""
        self._before = (self._before + text)[-MOST_HELD:]

    def _search(self, text: str, begin: int, end: int, partial: bool = False) -> Any:
        began = time.thread_time()
        try:
            found = self._pattern.search(text, begin, end, partial=partial, timeout=self._seconds)
        except TimeoutError:
            found, self._seconds = None, 0.0
        self._seconds -= time.thread_time() - began
        if self._seconds <= 0:
            raise ZooError(
                f"`stop_regex`: looking for it takes more than {SECONDS:g} s; it has to go back too often"
            )
        return found


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
        """PromptError for an invalid expression."""
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
