"""Constrained decoding by JSON Schema, regular expression or grammar (`llguidance`).

`compile_grammar` makes a grammar of `llguidance`; an error is one line. `TokenMask` has the tokens that a grammar allows
next.
"""

from zoo.generation.grammar.compile import Grammar, compile_grammar
from zoo.generation.grammar.token_mask import TokenMask, apply_mask, bits_of, token_mask, vocabulary_of

__all__ = [
    "Grammar",
    "TokenMask",
    "apply_mask",
    "bits_of",
    "compile_grammar",
    "token_mask",
    "vocabulary_of",
]
