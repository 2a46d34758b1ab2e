"""Which tokens may come next so that the whole text has a given form. Axes: V vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from functools import cache
from typing import Any

import mlx.core as mx
import numpy as np

from zoo.errors import PromptError, ZooError
from zoo.generation.grammar.compile import STUCK, Language, compile_grammar, reason
from zoo.generation.grammar.vocabulary import BITS, Vocabulary, bits_of, no_vocabulary, vocabulary_of
from zoo.tokenizer import Tokenizer

NEG_INF = -float("inf")  # the logit of a token that must not come


def token_mask(
    tokenizer: Tokenizer | None,
    vocab: int,
    ends: Iterable[int],
    *,
    json_schema: Mapping[str, Any] | str | None = None,
    regex: str | None = None,
    grammar: str | None = None,
) -> TokenMask | None:
    """The mask of a new text of the form that one of the settings gives, None where none of them does.

    `vocab` is the number of the model's logits, `ends` the ids that end a text: they are allowed where it is whole, and
    only there. PromptError, naming the setting, for a form that cannot be followed, or that the tokenizer cannot keep.

    >>> loaded = zoo.load("llama")
    >>> mask = token_mask(loaded.tokenizer, 2048, loaded.tokenizer.eos_ids, regex="(yes|no)")
    >>> for token in loaded.tokenizer.encode("no", special_tokens=False):
    ...     mask.update(token)
    >>> mask.done
    True
    """
    language = compile_grammar(json_schema=json_schema, regex=regex, grammar=grammar)
    if language is None:
        return None
    vocabulary = None if tokenizer is None else vocabulary_of(tokenizer, vocab)
    if vocabulary is None:
        raise no_vocabulary(language.name, tokenizer)
    return TokenMask(language, vocabulary, ends)


class TokenMask:
    """The state of one text: `allowed` before each token, `update` after it.

    A text that is cut off before `whole` is true has the form of a beginning only.
    """

    def __init__(self, language: Language, vocabulary: Vocabulary, ends: Iterable[int]) -> None:
        """PromptError for a form that no token can begin."""
        from llguidance import LLMatcher

        self.language, self.vocabulary = language, vocabulary
        self._ends = frozenset(end for end in ends if 0 <= end < vocabulary.end)
        self._end_bits = bits_of(self._ends, vocabulary.end)
        # A token that ends a text never stands in it, but for a special one where a grammar names it.
        self._inner = vocabulary.all & ~bits_of(self._ends - vocabulary.silent, vocabulary.end)
        self._taken = 0
        self._first: int | None = None  # how many were taken before the first one that has text
        self._stuck = False  # nothing but the end can follow
        self._matcher = LLMatcher(vocabulary.library, language.grammar, log_level=0)
        try:
            self.allowed()
        except ZooError as error:
            raise PromptError(str(error)) from None

    def allowed(self) -> np.ndarray:
        """The ids that may come next, as bits: uint32 (ceil(V/32),), the lowest id in the lowest bit.

        ZooError where none may though the text is not `done`: the tokenizer has no token for what must come.
        """
        found = np.frombuffer(self._matcher.compute_bitmask(), np.uint32)
        self._check()
        end, bits = self.vocabulary.end, found[: len(self._inner)] & self._inner
        if self._first is None:
            bits &= self.vocabulary.at_first
        self._stuck = not bits.any()
        if found[end // BITS] >> (end % BITS) & 1:
            bits |= self._end_bits
        elif self._stuck:
            raise ZooError(f"`{self.language.name}`: {STUCK}")
        return bits

    def update(self, token: int) -> None:
        """Go on after this token; ZooError for one that was not allowed."""
        # A grammar may name an end token, which is then a token of its own.
        named = token not in self._ends or self._matcher.validate_tokens([token])
        if not self._matcher.consume_token(token if named else self.vocabulary.end):
            raise ZooError(
                f"`{self.language.name}`: token {token} does not fit; other settings left no other"
            )
        if self._first is None and token not in self.vocabulary.silent:
            self._first = self._taken
        self._taken += 1
        self._stuck = False

    def back(self, count: int) -> None:
        """Forget the last `count` tokens that were taken."""
        if not self._matcher.rollback(count):
            self._check()
        self._taken -= count
        self._stuck = False
        if self._first is not None and self._first >= self._taken:
            self._first = None

    def copy(self) -> TokenMask:
        """Another mask in the same state, which goes on by itself."""
        twin = copy(self)
        twin._matcher = self._matcher.deep_copy()
        return twin

    @property
    def whole(self) -> bool:
        """Whether the text so far has the form, and may end here."""
        return self._matcher.is_accepting()

    @property
    def done(self) -> bool:
        """Whether the text has the form, and nothing but an end token can follow."""
        return self.whole and (self._stuck or self._matcher.is_stopped())

    def _check(self) -> None:
        if self._matcher.is_error():
            raise ZooError(f"`{self.language.name}`: {reason(self._matcher.get_error())}")


def masked(logits: mx.array, allowed: np.ndarray) -> mx.array:  # (B, V) -> (B, V)
    """The logits with those of ids that are not `allowed`, bits as `TokenMask.allowed` gives them, at minus infinity."""
    # Added, and looked up a byte at a time: choosing by a condition takes several times as long on the CPU.
    added = np.take(_added(), allowed.view(np.uint8), axis=0).reshape(-1)
    return logits + mx.array(added[: logits.shape[-1]])


@cache
def _added() -> np.ndarray:
    """What is added to the logits of eight ids, by the byte of their bits: float32 (256, 8)."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    return np.where(bits, 0, NEG_INF).astype(np.float32)
