"""A tokenizer's vocabulary as `llguidance` reads it: the bytes that each id adds to a text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from zoo.errors import PromptError, TokenizerError
from zoo.frozen import Frozen, frozen
from zoo.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLTokenizer

BITS = 32  # ids in a word of a mask


@frozen()
class Vocabulary(Frozen):
    """The ids of a model as a grammar sees them: V in all, of which some are special or padding.

    `library` is llguidance's form of it, with one more id, `end` = V, for the end of a text: which tokens end one may
    differ from text to text. `all` and `at_first` are masks, uint32 (ceil(V/32),), of these ids and of those that may
    begin a text; `silent` are those without text.
    """

    library: LLTokenizer
    end: int
    all: np.ndarray
    at_first: np.ndarray
    silent: frozenset[int]


class _Wrapped:
    """What llguidance asks of a tokenizer; grammars that force no tokens never ask it to encode."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokens: list[bytes], special: list[int], end: int) -> None:
        self.tokens, self.special_token_ids, self.eos_token_id = tokens, special, end

    def __call__(self, text: bytes | str) -> list[int]:
        return []


_built: WeakKeyDictionary[Tokenizer, dict[int, Vocabulary]] = WeakKeyDictionary()


def vocabulary_of(tokenizer: Tokenizer, size: int) -> Vocabulary | None:
    """The vocabulary of a model with `size` ids, kept as long as the tokenizer is.

    None where the text of ids is not the bytes of its tokens, one after the other.
    """
    kept = _built.setdefault(tokenizer, {})
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
    library = LLTokenizer(_Wrapped(tokens, [*(id for id in silent if tokens[id]), size], size))  # type: ignore[arg-type]
    everything = bits_of(range(size), size)
    at_first = everything & ~bits_of((id for id in text.altered_first if id < size), size)
    return Vocabulary(library, size, everything, at_first, frozenset(silent))


def bits_of(ids: Iterable[int], size: int) -> np.ndarray:
    """The mask of these of `size` ids."""
    chosen = np.zeros(-(-size // BITS) * BITS, np.uint8)
    chosen[list(ids)] = 1
    return np.packbits(chosen, bitorder="little").view(np.uint32)


def _written(tokenizer: Tokenizer, id: int) -> bytes:
    """A special token as the vocabulary writes it; nothing for an id that has none."""
    try:
        return tokenizer.token(id).encode("utf-8")
    except TokenizerError:
        return b""


def no_vocabulary(name: str, tokenizer: Tokenizer | None) -> PromptError:
    """Why a text of a given form cannot be asked for with this tokenizer, or without one."""
    if tokenizer is None:
        return PromptError(
            f"`{name}`: the model has no tokenizer, so there is no text whose form could be kept"
        )
    kind = f" ({tokenizer.kind})" if tokenizer.kind else ""
    return PromptError(
        f"`{name}`: this tokenizer{kind} changes text between tokens, so that the form of a text cannot be kept"
    )
