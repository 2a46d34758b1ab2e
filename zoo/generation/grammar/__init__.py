"""Constrained decoding by JSON Schema, regular expression or grammar (`llguidance`)."""

from __future__ import annotations

from zoo.generation.grammar.compile import Grammar, compile_grammar
from zoo.generation.grammar.mask import TokenMask, apply_mask, token_mask

__all__ = ["Grammar", "TokenMask", "apply_mask", "compile_grammar", "token_mask"]
