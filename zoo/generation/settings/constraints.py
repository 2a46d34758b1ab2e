"""The tokens that a checkpoint's `generation_config.json` bans or forces. The keys and their meanings are transformers'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zoo.errors import PromptError
from zoo.frozen import Frozen, frozen
from zoo.generation.settings.generation_config import whole


@frozen()
class Constraints(Frozen):
    """How long one sequence is, how it ends, and which tokens are banned or forced in it.

    `prompt` are the tokens before the first new one. `min_tokens` and `max_tokens` count new tokens, `min_length` the
    prompt too. `first_token` is forced where the prompt is a start token alone; one of `last_tokens` is forced at
    `max_tokens`. `bad_words` are sequences of tokens that never come, `suppressed` tokens that never come, and
    `suppressed_first` tokens that never come first.
    """

    eos_ids: frozenset[int] = frozenset()
    prompt: tuple[int, ...] = ()
    max_tokens: int = 0
    min_tokens: int = 0
    min_length: int = 0
    first_token: int | None = None
    last_tokens: tuple[int, ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()
    suppressed: tuple[int, ...] = ()
    suppressed_first: tuple[int, ...] = ()

    @property
    def banned(self) -> tuple[tuple[int, ...], ...]:
        """The sequences that never come: bad words, but for a single end token, and suppressed tokens."""
        words = (word for word in self.bad_words if len(word) > 1 or word[0] not in self.eos_ids)
        return (*words, *((token,) for token in self.suppressed))

    @property
    def forces(self) -> bool:
        """Whether a token is forced or suppressed at some position."""
        return self.first_token is not None or bool(self.last_tokens or self.suppressed_first)

    def too_short(self, count: int) -> bool:
        """Whether no end token may come after `count` new tokens."""
        return count < self.min_tokens or len(self.prompt) + count < self.min_length

    def forced(self, count: int) -> tuple[int, ...]:
        """The only tokens that may come after `count` new ones; empty where none is forced."""
        if self.first_token is not None and len(self.prompt) + count == 1:
            return (self.first_token,)
        return self.last_tokens if count == self.max_tokens - 1 else ()

    def suppressed_at(self, count: int) -> tuple[int, ...]:
        """The tokens that may not come after `count` new ones, and elsewhere may: those that may not come first."""
        # What must not come first must not come after a forced first token either.
        after = len(self.prompt) == 1 and self.first_token is not None
        return self.suppressed_first if count == after else ()


def constraints_of(
    values: Mapping[str, Any],
    vocab: int,
    *,
    eos_ids: frozenset[int],
    prompt: Sequence[int],
    max_tokens: int,
    first_token: int | None = None,
) -> Constraints:
    """The constraints of a generation config. `first_token` replaces its `forced_bos_token_id`.

    PromptError names a key whose value is malformed.
    """
    banned = values.get("bad_words_ids") or []
    if not isinstance(banned, list) or not all(isinstance(ids, list) and ids for ids in banned):
        raise PromptError(
            f"generation_config.json: bad_words_ids must be a list of lists of ids, got {banned!r:.60}"
        )
    if first_token is None:
        first_token = next(iter(_ids(values, "forced_bos_token_id", vocab)), None)
    return Constraints(
        eos_ids=eos_ids,
        prompt=tuple(prompt),
        max_tokens=max_tokens,
        min_tokens=whole(values, "min_new_tokens"),
        min_length=whole(values, "min_length"),
        first_token=first_token,
        last_tokens=_ids(values, "forced_eos_token_id", vocab),
        bad_words=tuple(_ids({"bad_words_ids": ids}, "bad_words_ids", vocab) for ids in banned),
        suppressed=_ids(values, "suppress_tokens", vocab),
        suppressed_first=_ids(values, "begin_suppress_tokens", vocab),
    )


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
