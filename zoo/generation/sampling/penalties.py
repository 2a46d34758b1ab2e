"""What the text so far does to the logits of the next token: penalties, bans and DRY ("don't repeat yourself").

Penalties of repetition, presence and frequency are computed from counts that stay where the logits are, so that the next
pass need not wait for the last token. Bans remove the tokens that would complete a sequence; an update and a look-up take
constant time. DRY penalises the tokens that would go on with a repetition.
Axes: V vocabulary.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence

import mlx.core as mx

from zoo.generation.sampling.logits import NEG_INF, marked, mask_tokens

HIGHEST = 1e30  # a penalty that float32 holds


def repetition(logits: mx.array, seen: mx.array, penalty: float) -> mx.array:
    """Logits of the tokens `seen` (V,), booleans, divided by `penalty` if positive, else multiplied: (…, V) -> (…, V).

    Keskar et al., 2019, "CTRL", section 4.1; the case of negative logits is transformers'.
    """
    weighed = mx.where(logits < 0, logits * penalty, logits / penalty)
    return mx.where(seen, weighed, logits)


def presence(logits: mx.array, counts: mx.array, penalty: float) -> mx.array:
    """Less `penalty` for each token that came: (…, V), (V,) -> (…, V).

    OpenAI's definition, as is that of `frequency`: `counts` are those of generated tokens alone, the prompt's left out.
    """
    return logits - penalty * (counts > 0)


def frequency(logits: mx.array, counts: mx.array, penalty: float) -> mx.array:
    """Less `penalty` for each time that a token came: (…, V), (V,) -> (…, V)."""
    return logits - penalty * counts


def exponential_decay(
    logits: mx.array, ends: Sequence[int], start: int, decay: float, count: int
) -> mx.array:
    """The logits after `count` tokens, those of the tokens `ends` raised by |logit| · (`decay` ** (count − start) − 1).

    (…, V) -> (…, V). Up to `start` tokens nothing changes, and a removed token stays removed. transformers' definition.
    """
    eos = marked(logits.shape[-1], ends)
    if count <= start or eos is None:
        return logits
    growth = math.exp(min((count - start) * math.log(decay), math.log(HIGHEST))) - 1
    return mx.where(eos & (logits > NEG_INF), logits + mx.abs(logits) * growth, logits)


class Counts:
    """How often each token is among the last `size` (0: all), as an array (V,) of whole numbers."""

    def __init__(self, vocab: int, tokens: Sequence[int] = (), size: int = 0) -> None:
        latest = list(tokens[-size:] if size else tokens)
        self.array = mx.zeros(vocab, mx.int32)  # (V,)
        if latest:
            self.array = self.array.at[mx.array(latest)].add(1)
        self.size = size
        self._window = deque(mx.array([token]) for token in latest) if size else None

    def update(self, token: mx.array) -> None:
        """Count one more token (1,), evaluated or not."""
        self.array = self.array.at[token].add(1)
        if self._window is not None:
            self._window.append(token)
            if len(self._window) > self.size:
                self.array = self.array.at[self._window.popleft()].add(-1)


class BannedSequences:
    """Removes the tokens that would complete one of some sequences at the end of the text.

    `runs` are sequences of one token or more. With `repeats`, the n-grams of so many tokens that the text has are
    sequences, too. `looks_back`: which tokens these are depends on the tokens before.
    """

    def __init__(
        self, runs: Iterable[Sequence[int]] = (), given: Sequence[int] = (), repeats: int = 0
    ) -> None:
        self._single: list[int] = []
        self._last: dict[tuple[int, ...], set[int]] = {}  # of the sequences with each beginning
        for *start, last in runs:
            if start:
                self._last.setdefault(tuple(start), set()).add(last)
            else:
                self._single.append(last)
        self._repeats = repeats
        lengths = {len(start) for start in self._last} | ({repeats - 1} if repeats else set())
        self._lengths = sorted(lengths)
        self._text = deque[int](maxlen=max(lengths, default=0))
        self._marks: mx.array | None = None  # (V,), of single tokens
        self.looks_back = bool(lengths)
        if not repeats:
            self._text.extend(given)
        for token in given if repeats else ():
            self.update(token)

    def completing(self) -> set[int]:
        """The tokens that would complete a sequence of several."""
        text = tuple(self._text)
        starts = (text[len(text) - length :] for length in self._lengths if length <= len(text))
        return set().union(*(self._last.get(start, ()) for start in starts))

    def __call__(self, logits: mx.array) -> mx.array:
        """The logits without these tokens, (1, V) -> (1, V)."""
        if self._single and self._marks is None:
            self._marks = marked(logits.shape[-1], self._single)
        if self._marks is not None:
            logits = mx.where(self._marks, NEG_INF, logits)
        return mask_tokens(logits, sorted(self.completing())) if self.looks_back else logits

    def update(self, token: int) -> None:
        """One more token of the text."""
        if self._repeats and len(self._text) >= self._repeats - 1:
            start = tuple(self._text)[len(self._text) - self._repeats + 1 :]
            self._last.setdefault(start, set()).add(token)
        self._text.append(token)


LONGEST = 50  # tokens beyond the allowed length from which on the penalty does not grow


class Dry:
    """The penalty of one sequence: `multiplier` · `base` ** (n - `allowed`), taken from the logit of a token.

    n is the length of the longest run at the end of the text that was there before, followed by that token; below
    `allowed` there is no penalty. No run goes across one of `breakers`, each a run of tokens, and a breaker of one token
    is never penalised. The prompt, `given`, counts. DRY, by p-e-w, has no paper; this is text-generation-webui's and
    llama.cpp's penalty.
    """

    def __init__(
        self,
        multiplier: float,
        base: float,
        allowed: int,
        breakers: Iterable[Sequence[int]] = (),
        given: Sequence[int] = (),
    ) -> None:
        self.multiplier, self.base, self.allowed = multiplier, base, allowed
        runs = [tuple(run) for run in breakers]
        self._single = frozenset(run[0] for run in runs if len(run) == 1)
        self._several = BannedSequences(run for run in runs if len(run) > 1)
        self._text: list[int | None] = []  # None stands for a break
        self._places: dict[int, list[int]] = {}  # of each token in the text
        for token in given:
            self.update(token)

    def repetitions(self) -> dict[int, int]:
        """The tokens that followed earlier copies of the text's end, each with the length of the longest copy."""
        text, longest = self._text, dict[int, int]()
        end, most = len(text) - 1, self.allowed + LONGEST
        last = text[end] if text else None
        for place in () if last is None else self._places[last][:-1]:
            follower, length = text[place + 1], 1
            while length < min(most, place + 1) and text[place - length] == text[end - length] is not None:
                length += 1
            if follower is not None and length >= max(self.allowed, longest.get(follower, 0)):
                longest[follower] = length
        return longest

    def __call__(self, logits: mx.array) -> mx.array:
        """The penalised logits, (1, V) -> (1, V)."""
        penalties = {
            token: min(self.multiplier * self.base ** (length - self.allowed), HIGHEST)
            for token, length in self.repetitions().items()
            if token < logits.shape[-1]
        }
        if not penalties:
            return logits
        return logits.at[:, mx.array(list(penalties))].subtract(mx.array(list(penalties.values())))

    def update(self, token: int) -> None:
        """One more token of the text."""
        breaks = token in self._single or token in self._several.completing()
        self._several.update(token)
        if not breaks:
            self._places.setdefault(token, []).append(len(self._text))
        self._text.append(None if breaks else token)
