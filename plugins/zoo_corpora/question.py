"""Questions that measure what a trained model knows. Imports no mlx, since corpora give them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """A text cut before its answer, or one to translate; right is what gives `continuation`.

    `prompt` has no trailing space, `continuation` is the exact text that follows it, `ending` what then ends the
    sentence. `held_out` says that training never shows this text. Scores are counted by `relation` and `language`.
    """

    prompt: str
    continuation: str
    ending: str
    relation: str
    language: str
    held_out: bool
