"""The strings of some settings as sequences of tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from zoo.errors import PromptError
from zoo.frozen import Frozen, frozen
from zoo.tokenizer import Tokenizer

if TYPE_CHECKING:
    from zoo.generation.settings import Settings

TokenSequence = tuple[int, ...]
BEFORE = "\n"  # a character that tokenizers do not join with a word after it

# The bytes of each tokenizer's tokens, computed once.
_VOCABULARIES: WeakKeyDictionary[Tokenizer, list[bytes | None]] = WeakKeyDictionary()


@frozen()
class TokenStrings(Frozen):
    """The strings of some settings as tokens: `banned` sequences, DRY's `breakers`, and tokens with a line break."""

    banned: tuple[TokenSequence, ...] = ()
    breakers: tuple[TokenSequence, ...] = ()
    lines: tuple[int, ...] = ()


def token_strings_of(tokenizer: Tokenizer | None, settings: Settings) -> TokenStrings:
    """The strings of the settings in tokens; PromptError for a string that the tokenizer cannot encode."""
    return TokenStrings(
        banned=banned_sequences(tokenizer, settings.banned),
        breakers=breaker_sequences(tokenizer, settings.dry_breakers) if settings.dry_multiplier else (),
        lines=line_tokens(tokenizer) if settings.xtc_probability else (),
    )


def encodings(tokenizer: Tokenizer, text: str) -> set[TokenSequence]:
    """The token sequences that encode `text` at the start of a text, at the start of a line, and after a space.

    Other sequences for the same text ("b", "ad"), and longer words that contain it, are not among them.
    """
    variants = [text] if text[:1].isspace() else [text, " " + text]
    unknown = tokenizer.special_tokens.get("unk_token")
    found: set[TokenSequence] = set()
    for variant in variants:
        found.add(_encode(tokenizer, variant))
        start, whole = _encode(tokenizer, BEFORE), _encode(tokenizer, BEFORE + variant)
        if whole[: len(start)] == start:
            found.add(whole[len(start) :])
    # A sequence with the unknown token stands for many texts.
    bad = None if unknown is None else tokenizer.id(unknown)
    return {run for run in found if run and bad not in run}


def tokens_with(tokenizer: Tokenizer, text: str) -> list[int]:
    """The tokens that contain `text`, in the order of their ids; tokens without known bytes are left out."""
    if tokenizer not in _VOCABULARIES:
        _VOCABULARIES[tokenizer] = [tokenizer.token_bytes(id) for id in range(tokenizer.vocab_size)]
    wanted = text.encode("utf-8")
    return [id for id, held in enumerate(_VOCABULARIES[tokenizer]) if held is not None and wanted in held]


def banned_sequences(tokenizer: Tokenizer | None, texts: Iterable[str]) -> tuple[TokenSequence, ...]:
    """The token sequences of these texts; PromptError for a text that has none."""
    found: set[TokenSequence] = set()
    for text in texts:
        if tokenizer is None:
            raise PromptError(f"`banned` needs a tokenizer, which this checkpoint lacks, for {text!r:.60}")
        runs = encodings(tokenizer, text)
        if not runs:
            raise PromptError(f"`banned`: the tokenizer has no tokens for {text!r:.60}")
        found |= runs
    return tuple(sorted(found))


def breaker_sequences(tokenizer: Tokenizer | None, texts: Iterable[str]) -> tuple[TokenSequence, ...]:
    """The tokens that contain one of these texts, and the longer sequences that encode one; none without a tokenizer."""
    if tokenizer is None:
        return ()
    found: set[TokenSequence] = set()
    for text in texts:
        found |= {(id,) for id in tokens_with(tokenizer, text)}
        found |= {run for run in encodings(tokenizer, text) if len(run) > 1}
    return tuple(sorted(found))


def line_tokens(tokenizer: Tokenizer | None) -> tuple[int, ...]:
    """The tokens with a line break; none without a tokenizer."""
    return () if tokenizer is None else tuple(tokens_with(tokenizer, "\n"))


def _encode(tokenizer: Tokenizer, text: str) -> TokenSequence:
    return tuple(tokenizer.encode(text, special_tokens=False))
