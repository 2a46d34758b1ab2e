"""Text of a given form: JSON of a schema, what a regular expression matches, what a grammar derives (by `llguidance`)."""

from __future__ import annotations

from zoo.generation.grammar.compile import Language, compile_grammar
from zoo.generation.grammar.mask import TokenMask, masked, token_mask

__all__ = ["Language", "TokenMask", "compile_grammar", "masked", "token_mask"]
