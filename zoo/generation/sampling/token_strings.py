"""Texts as runs of tokens: those that a text bans, and those that break a repetition."""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakKeyDictionary

from zoo.errors import PromptError
from zoo.frozen import Frozen, frozen
from zoo.tokenizer import Tokenizer

Run = tuple[int, ...]
BEFORE = "\n"  # a character that tokenizers do not join with a word after it

# The tokens of each tokenizer in bytes, which are asked for again with every text that breaks a repetition.
_VOCABULARIES: WeakKeyDictionary[Tokenizer, list[bytes | None]] = WeakKeyDictionary()


@frozen()
class Spelled(Frozen):
    """What settings name by texts, in tokens: runs that are `banned`, `breakers` of DRY, tokens that hold a `line` break."""

    banned: tuple[Run, ...] = ()
    breakers: tuple[Run, ...] = ()
    lines: tuple[int, ...] = ()


def spellings(tokenizer: Tokenizer, text: str) -> set[Run]:
    """The runs of tokens that the tokenizer writes `text` with: at the start of a text or a line, and after a space.

    A model can write the same text in other cuts ("b", "ad"), or as a part of a longer word; those are not among them.
    """
    variants = [text] if text[:1].isspace() else [text, " " + text]
    unknown = tokenizer.special_tokens.get("unk_token")
    found: set[Run] = set()
    for variant in variants:
        found.add(_encoded(tokenizer, variant))
        start, whole = _encoded(tokenizer, BEFORE), _encoded(tokenizer, BEFORE + variant)
        if whole[: len(start)] == start:
            found.add(whole[len(start) :])
    # A run with the unknown token stands for many texts.
    bad = None if unknown is None else tokenizer.id(unknown)
    return {run for run in found if run and bad not in run}


def containing(tokenizer: Tokenizer, text: str) -> list[int]:
    """The tokens within which `text` stands, in the order of their ids; none where a token's bytes cannot be told."""
    if tokenizer not in _VOCABULARIES:
        _VOCABULARIES[tokenizer] = [tokenizer.token_bytes(id) for id in range(tokenizer.vocab_size)]
    wanted = text.encode("utf-8")
    return [id for id, held in enumerate(_VOCABULARIES[tokenizer]) if held is not None and wanted in held]


def banned_runs(tokenizer: Tokenizer | None, texts: Iterable[str]) -> tuple[Run, ...]:
    """The runs of tokens that spell these texts; PromptError for a text that none spells."""
    found: set[Run] = set()
    for text in texts:
        if tokenizer is None:
            raise PromptError(f"`banned` needs a tokenizer, which this checkpoint lacks, for {text!r:.60}")
        runs = spellings(tokenizer, text)
        if not runs:
            raise PromptError(f"`banned`: the tokenizer has no tokens for {text!r:.60}")
        found |= runs
    return tuple(sorted(found))


def breaking_runs(tokenizer: Tokenizer | None, texts: Iterable[str]) -> tuple[Run, ...]:
    """Each token that holds one of these texts, and the runs of several that spell one; without a tokenizer none."""
    if tokenizer is None:
        return ()
    found: set[Run] = set()
    for text in texts:
        found |= {(id,) for id in containing(tokenizer, text)}
        found |= {run for run in spellings(tokenizer, text) if len(run) > 1}
    return tuple(sorted(found))


def line_tokens(tokenizer: Tokenizer | None) -> tuple[int, ...]:
    """The tokens that hold a line break; without a tokenizer none."""
    return () if tokenizer is None else tuple(containing(tokenizer, "\n"))


def _encoded(tokenizer: Tokenizer, text: str) -> Run:
    return tuple(tokenizer.encode(text, special_tokens=False))
