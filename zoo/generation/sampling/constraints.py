"""What a checkpoint's `generation_config.json` forbids or forces, as changes of the scores of the next token.

The keys and what each does are transformers', and so is the order in which they are applied. Axes: H hypotheses
(rows of a beam search), V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx

from zoo.errors import PromptError
from zoo.frozen import Frozen, frozen
from zoo.generation.sampling.logits import forced, removed
from zoo.generation.settings.generation_config import whole


@frozen()
class Constraints(Frozen):
    """Changes of the scores, given the tokens so far. Those the model is given before the first are `given`.

    `least` counts new tokens, `least_length` the given ones too; `last` is the number of new tokens at the limit.
    """

    ends: frozenset[int] = frozenset()
    given: tuple[int, ...] = ()
    last: int = 0
    least: int = 0
    least_length: int = 0
    first_token: int | None = None
    last_tokens: tuple[int, ...] = ()
    never: tuple[tuple[int, ...], ...] = ()
    suppressed: tuple[int, ...] = ()
    suppressed_first: tuple[int, ...] = ()
    no_repeat: int = 0
    repetition: float = 1.0

    @property
    def active(self) -> bool:
        """Whether there is anything to change."""
        counted = (self.least, self.least_length, self.last_tokens, self.suppressed, self.suppressed_first)
        return self.look_back or any(counted) or bool(self.never) or self.first_token is not None

    @property
    def look_back(self) -> bool:
        """Whether the scores depend on which tokens came before, and not only on how many."""
        return bool(
            self.no_repeat or self.repetition != 1.0 or any(len(sequence) > 1 for sequence in self.never)
        )

    @property
    def always(self) -> tuple[int, ...]:
        """The tokens that never come: those suppressed, and the single ones of `never` that end no text."""
        single = (run[0] for run in self.never if len(run) == 1 and run[0] not in self.ends)
        return (*single, *self.suppressed)

    @property
    def banned(self) -> tuple[tuple[int, ...], ...]:
        """The runs of tokens that never come: those that `always` has by themselves, and those of several."""
        return (*((token,) for token in self.always), *(run for run in self.never if len(run) > 1))

    @property
    def places(self) -> bool:
        """Whether a token is forced or suppressed at some place of the text."""
        return self.first_token is not None or bool(self.last_tokens or self.suppressed_first)

    def __call__(self, scores: mx.array, texts: Sequence[Sequence[int]]) -> mx.array:  # (H, V) -> (H, V)
        """The scores changed; `texts` are the new tokens of each row, all of the same number."""
        if self.look_back:
            scores = self._looking_back(scores, [[*self.given, *text] for text in texts])
        return self.by_count(removed(scores, self.always), len(texts[0]))

    def by_count(self, scores: mx.array, new: int) -> mx.array:  # (…, V) -> (…, V)
        """What depends on the number of `new` tokens alone: the least number, and forced tokens."""
        if self.too_short(new):
            scores = removed(scores, tuple(self.ends))
        return self.by_place(scores, new)

    def too_short(self, new: int) -> bool:
        """Whether the text is too short to end after `new` tokens."""
        return new < self.least or len(self.given) + new < self.least_length

    def by_place(self, scores: mx.array, new: int) -> mx.array:  # (…, V) -> (…, V)
        """The scores with the tokens forced or suppressed that depend on the number of `new` tokens."""
        if self.first_token is not None and len(self.given) + new == 1:
            return forced(scores, (self.first_token,))
        if self.last_tokens and new == self.last - 1:
            return forced(scores, self.last_tokens)
        # What must not come first must not come after a forced first token either.
        after = len(self.given) == 1 and self.first_token is not None
        return removed(scores, self.suppressed_first) if new == after else scores

    def _looking_back(self, scores: mx.array, texts: list[list[int]]) -> mx.array:
        rows = []
        for row, text in zip(scores, texts, strict=True):
            if self.repetition != 1.0:
                seen = mx.array(sorted(set(text)))
                weighed = mx.where(row[seen] < 0, row[seen] * self.repetition, row[seen] / self.repetition)
                row = mx.put_along_axis(row, seen, weighed.astype(row.dtype), axis=0)
            rows.append(removed(row, repeating(text, self.no_repeat) + completing(text, self.never)))
        return mx.stack(rows)


def repeating(text: Sequence[int], size: int) -> list[int]:
    """The tokens that would complete a run of `size` that the text has already; none for size 0."""
    if not size or len(text) + 1 < size:
        return []
    start = list(text[len(text) - size + 1 :])
    return [text[i + size - 1] for i in range(len(text) - size + 1) if list(text[i : i + size - 1]) == start]


def completing(text: Sequence[int], sequences: Sequence[Sequence[int]]) -> list[int]:
    """The tokens that would complete one of `sequences` of two tokens and more."""
    return [
        tokens[-1]
        for tokens in sequences
        if len(tokens) > 1
        and len(tokens) - 1 <= len(text)
        and list(text[1 - len(tokens) :]) == list(tokens[:-1])
    ]


def constraints_of(
    values: Mapping[str, Any],
    vocab: int,
    *,
    ends: frozenset[int],
    given: Sequence[int],
    last: int,
    **changes: Any,
) -> Constraints:
    """What a generation config asks for, `changes` (those not None) in place of its own.

    `given` are the tokens before the first new one, `last` the number of new ones at the limit. PromptError names
    a key whose value is malformed.
    """
    banned = values.get("bad_words_ids") or []
    if not isinstance(banned, list) or not all(isinstance(ids, list) and ids for ids in banned):
        raise PromptError(
            f"generation_config.json: bad_words_ids must be a list of lists of ids, got {banned!r:.60}"
        )
    repetition = values.get("repetition_penalty") or 1.0
    if not isinstance(repetition, int | float) or not 1e-3 <= repetition <= 1e3:
        raise PromptError(
            f"generation_config.json: repetition_penalty must lie in 0.001..1000, got {repetition!r}"
        )
    found: dict[str, Any] = dict(
        least=whole(values, "min_new_tokens"),
        least_length=whole(values, "min_length"),
        first_token=next(iter(_ids(values, "forced_bos_token_id", vocab)), None),
        last_tokens=_ids(values, "forced_eos_token_id", vocab),
        never=tuple(_ids({"bad_words_ids": ids}, "bad_words_ids", vocab) for ids in banned),
        suppressed=_ids(values, "suppress_tokens", vocab),
        suppressed_first=_ids(values, "begin_suppress_tokens", vocab),
        no_repeat=whole(values, "no_repeat_ngram_size"),
        repetition=float(repetition),
    )
    found |= {name: value for name, value in changes.items() if value is not None}
    return Constraints(ends=ends, given=tuple(given), last=last, **found)


def _ids(values: Mapping[str, Any], key: str, vocab: int) -> tuple[int, ...]:
    """The ids of a key that holds one, several or none."""
    value = values.get(key)
    ids = value if isinstance(value, list) else [] if value is None else [value]
    for token in ids:
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < vocab:
            raise PromptError(
                f"generation_config.json: {key} must name tokens of the vocabulary, got {token!r}"
            )
    return tuple(ids)
