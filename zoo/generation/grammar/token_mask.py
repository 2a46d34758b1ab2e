"""The tokens that a grammar allows next, of a vocabulary as `llguidance` reads it: the bytes that each id adds to a text.

Axes: V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import mlx.core as mx
import numpy as np

from zoo.errors import PromptError, TokenizerError, ZooError
from zoo.frozen import Frozen, frozen
from zoo.generation.grammar.compile import NO_TOKEN, Grammar, compile_grammar, error_line
from zoo.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

BITS = 32  # ids in a word of a mask
MOST_COMPILED = 16  # grammars that are kept


@frozen()
class Vocabulary(Frozen):
    """The V ids of a model, some of them special or padding, as a grammar sees them.

    `library` is llguidance's form, with one more id, `end` = V, for the end of a text, because texts may have different
    end tokens. `all` and `at_first` are masks, uint32 (ceil(V/32),), of all ids and of those that may begin a text;
    `silent` are the ids without text.
    """

    library: LLTokenizer
    end: int
    all: np.ndarray
    at_first: np.ndarray
    silent: frozenset[int]


class _TokenizerWrapper:
    """The interface that llguidance needs of a tokenizer. It never encodes, because the grammars force no tokens."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokens: list[bytes], special: list[int], end: int) -> None:
        self.tokens, self.special_token_ids, self.eos_token_id = tokens, special, end

    def __call__(self, text: bytes | str) -> list[int]:
        return []


_VOCABULARIES: WeakKeyDictionary[Tokenizer, dict[int, Vocabulary]] = WeakKeyDictionary()


def vocabulary_of(tokenizer: Tokenizer, size: int) -> Vocabulary | None:
    """The vocabulary of a model with `size` ids, built once for each tokenizer.

    None where decoding does more than join the bytes of tokens.
    """
    from llguidance import LLTokenizer

    built = _VOCABULARIES.setdefault(tokenizer, {})
    if size in built or (text := tokenizer.text_bytes()) is None:
        return built.get(size)
    known = text.tokens[:size]
    silent = [id for id, token in enumerate(known) if token is None]
    # A grammar can name a special token as it is written; an id without a token is never allowed.
    tokens = [_written(tokenizer, id) if token is None else token for id, token in enumerate(known)]
    tokens += [b""] * (size - len(tokens)) + [b"<end of text>"]
    library = LLTokenizer(_TokenizerWrapper(tokens, [*(id for id in silent if tokens[id]), size], size))  # type: ignore[arg-type]
    everything = bits_of(range(size), size)
    at_first = everything & ~bits_of((id for id in text.altered_first if id < size), size)
    built[size] = Vocabulary(library, size, everything, at_first, frozenset(silent))
    return built[size]


def bits_of(ids: Iterable[int], size: int) -> np.ndarray:
    """The mask of these of `size` ids."""
    chosen = np.zeros(-(-size // BITS) * BITS, np.uint8)
    chosen[list(ids)] = 1
    return np.packbits(chosen, bitorder="little").view(np.uint32)


def _written(tokenizer: Tokenizer, id: int) -> bytes:
    """A special token as the vocabulary writes it; nothing for an id without a token."""
    try:
        return tokenizer.token(id).encode("utf-8")
    except TokenizerError:
        return b""


def token_mask(
    tokenizer: Tokenizer | None, vocab: int, eos_ids: Iterable[int], **form: Any
) -> TokenMask | None:
    """Returns a TokenMask for a new text by the grammar setting that is given, or None without one.

    `vocab` is the number of the model's logits. The `eos_ids`, which end a text, are allowed where it is complete, and
    only there. PromptError, naming the setting, for a grammar that llguidance or the tokenizer does not support.

    >>> loaded = zoo.load("llama")
    >>> mask = token_mask(loaded.tokenizer, 2048, loaded.tokenizer.eos_ids, regex="(yes|no)")
    >>> for token in loaded.tokenizer.encode("no", special_tokens=False):
    ...     mask.update(token)
    >>> mask.done
    True
    """
    compiled = compile_grammar(**form)
    if compiled is None:
        return None
    if tokenizer is None:
        raise PromptError(f"`{compiled.name}`: the model has no tokenizer, so its text cannot be constrained")
    vocabulary = vocabulary_of(tokenizer, vocab)
    if vocabulary is None:
        kind = f" ({tokenizer.kind})" if tokenizer.kind else ""
        raise PromptError(
            f"`{compiled.name}`: this tokenizer{kind} changes text between tokens, so its text "
            "cannot be constrained"
        )
    return TokenMask(compiled, vocabulary, eos_ids)


@lru_cache(MOST_COMPILED)
def _compiled(library: LLTokenizer, lark: str) -> LLMatcher:
    """The matcher of a grammar before any token, to be copied: compiling one may take a second."""
    from llguidance import LLMatcher

    return LLMatcher(library, lark, log_level=0)


class TokenMask:
    """The state of one text: `allowed` before each token, `update` after it.

    A text that is cut off before `complete` is true is only a beginning of what the grammar allows.
    """

    def __init__(self, grammar: Grammar, vocabulary: Vocabulary, eos_ids: Iterable[int]) -> None:
        """PromptError for a grammar that no token can begin."""
        self.grammar, self.vocabulary = grammar, vocabulary
        self._ends = frozenset(end for end in eos_ids if 0 <= end < vocabulary.end)
        self._end_bits = bits_of(self._ends, vocabulary.end)
        # An end token never stands within a text, except a special token that the grammar names.
        self._inner = vocabulary.all & ~bits_of(self._ends - vocabulary.silent, vocabulary.end)
        self._begun = False  # whether a token with text came
        self._only_end = False  # nothing but the end can follow
        self._matcher = _compiled(vocabulary.library, grammar.lark).deep_copy()
        try:
            self.allowed()
        except ZooError as error:
            raise PromptError(str(error)) from None

    def allowed(self) -> np.ndarray:
        """The ids that may come next, as bits: uint32 (ceil(V/32),), the lowest id in the lowest bit.

        ZooError where there is none though the text is not `done`: the tokenizer lacks the token.
        """
        words = np.frombuffer(self._matcher.compute_bitmask(), np.uint32)
        if self._matcher.is_error():
            raise ZooError(f"`{self.grammar.name}`: {error_line(self._matcher.get_error())}")
        end, bits = self.vocabulary.end, words[: len(self._inner)] & self._inner
        if not self._begun:
            bits &= self.vocabulary.at_first
        self._only_end = not bits.any()
        if words[end // BITS] >> (end % BITS) & 1:
            bits |= self._end_bits
        elif self._only_end:
            raise ZooError(f"`{self.grammar.name}`: {NO_TOKEN}")
        return bits

    def update(self, token: int) -> None:
        """Advance by this token; ZooError for one that was not allowed."""
        # A grammar may name an end token, which is then a token of its own.
        named = token not in self._ends or self._matcher.validate_tokens([token])
        if not self._matcher.consume_token(token if named else self.vocabulary.end):
            raise ZooError(
                f"`{self.grammar.name}`: token {token} breaks it, and the other settings allow no other token"
            )
        self._begun = self._begun or token not in self.vocabulary.silent
        self._only_end = False

    @property
    def complete(self) -> bool:
        """Whether the grammar accepts the text so far."""
        return self._matcher.is_accepting()

    @property
    def done(self) -> bool:
        """Whether the text is complete, and nothing but an end token can follow."""
        return self.complete and (self._only_end or self._matcher.is_stopped())


def apply_mask(logits: mx.array, allowed: np.ndarray) -> mx.array:  # (B, V) -> (B, V)
    """The logits with those of ids that are not `allowed` (the bits of `TokenMask.allowed`) at minus infinity."""
    # A sum with a table that is looked up by bytes: a selection by a condition is several times slower on the CPU.
    added = np.take(_added(), allowed.view(np.uint8), axis=0).reshape(-1)
    return logits + mx.array(added[: logits.shape[-1]])


@cache
def _added() -> np.ndarray:
    """What is added to the logits of eight ids, by the byte of their bits: float32 (256, 8)."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    return np.where(bits, 0, -np.inf).astype(np.float32)
