"""Limits on how much the parts of a `tokenizer.json` lengthen a text."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.errors import TokenizerError
from zoo.tokenizer.detokenizer import flat

if TYPE_CHECKING:
    import tokenizers

MOST_PARTS = 100  # of a normalizer, pre-tokenizer or decoder; published ones have about ten
MOST_GROWTH = 10_000  # characters that one may become
MOST_WORD = 1000  # characters of a word that WordPiece looks for in its vocabulary, in the square of the time

# The most characters that one may become: the longest of Unicode's forms is U+FDFA, and UTF-8 has up to four bytes.
GROWTH = {"NFKC": 18, "NFKD": 18, "Precompiled": 18, "NFC": 3, "NFD": 4, "Lowercase": 2, "BertNormalizer": 4}
GROWTH |= {"ByteLevel": 4}


def check_growth(path: Path, tokenizer: tokenizers.Tokenizer) -> None:
    """TokenizerError, naming the file, for a tokenizer that may take hours or all memory for a short text."""
    for name in ("normalizer", "pre_tokenizer", "decoder"):
        part = getattr(tokenizer, name)
        parts = [] if part is None else flat(json.loads(part.__getstate__()))
        if len(parts) > MOST_PARTS:
            raise TokenizerError(f"{path}: its {name} has {len(parts)} parts, more than {MOST_PARTS}")
        if math.prod(map(_growth, parts)) > MOST_GROWTH:
            raise TokenizerError(f"{path}: its {name} may make a text over {MOST_GROWTH} times as long")
    longest = getattr(tokenizer.model, "max_input_chars_per_word", 0)
    if longest > MOST_WORD:
        raise TokenizerError(f"{path}: max_input_chars_per_word {longest} is more than {MOST_WORD}")


def _growth(part: Mapping[str, Any]) -> float:
    """The most characters that a part makes of one."""
    if part["type"] != "Replace":
        return GROWTH.get(part["type"], 1)
    replaced = len(
        part["pattern"].get("String", "")
    )  # an expression may match the empty text before a character
    return max(1, len(part["content"]) / replaced if replaced else 1 + len(part["content"]))
