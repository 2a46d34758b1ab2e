"""Constrained decoding by JSON Schema, regular expression or grammar (`llguidance`).

`compile.compile_grammar` makes a grammar of `llguidance`; an error is one line. `token_mask.TokenMask` has the tokens that a
grammar allows next.
"""
