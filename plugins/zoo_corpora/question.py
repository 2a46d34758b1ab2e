"""Questions that measure what a trained model knows, and the draw of those held out. Imports no mlx."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """A text cut before its answer, or one to translate; the right answer is `continuation`.

    `prompt` has no trailing space, `continuation` is the exact text that follows it, `ending` what then ends the
    sentence. `held_out` says that training never shows this text. Scores are counted by `relation` and `language`.
    """

    prompt: str
    continuation: str
    ending: str
    relation: str
    language: str
    held_out: bool


def uniform(*texts: str) -> float:
    """A number in [0, 1) that depends on the texts alone; Python's `hash` differs from process to process."""
    digest = hashlib.sha256("\n".join(texts).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
