"""Text of a given form: JSON of a schema, what a regular expression matches, what a grammar derives (by `llguidance`)."""

from __future__ import annotations

from zoo.generation.grammar.compile import Language, language_of
from zoo.generation.grammar.mask import TokenMask, masked, token_mask

__all__ = ["Language", "TokenMask", "language_of", "masked", "token_mask"]
