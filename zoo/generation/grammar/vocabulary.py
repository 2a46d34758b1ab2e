"""A tokenizer's vocabulary as `llguidance` reads it: the bytes that each id adds to a text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from zoo.errors import TokenizerError
from zoo.frozen import Frozen, frozen
from zoo.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLTokenizer

BITS = 32  # ids in a word of a mask


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
    kept = _VOCABULARIES.setdefault(tokenizer, {})
    if size not in kept:
        made = _build(tokenizer, size)
        if made is None:
            return None
        kept[size] = made
    return kept[size]


def _build(tokenizer: Tokenizer, size: int) -> Vocabulary | None:
    from llguidance import LLTokenizer

    text = tokenizer.text_bytes()
    if text is None:
        return None
    known = text.tokens[:size]
    silent = [id for id, token in enumerate(known) if token is None]
    # A grammar can name a special token as it is written; an id without a token is never allowed.
    tokens = [_written(tokenizer, id) if token is None else token for id, token in enumerate(known)]
    tokens += [b""] * (size - len(tokens)) + [b"<end of text>"]
    library = LLTokenizer(_TokenizerWrapper(tokens, [*(id for id in silent if tokens[id]), size], size))  # type: ignore[arg-type]
    everything = bits_of(range(size), size)
    at_first = everything & ~bits_of((id for id in text.altered_first if id < size), size)
    return Vocabulary(library, size, everything, at_first, frozenset(silent))


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
