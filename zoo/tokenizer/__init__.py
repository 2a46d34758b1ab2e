"""Text to ids and back: tokenizers of every kind, languages, chat templates."""

from __future__ import annotations

from zoo.tokenizer.backend import Backend, TextBytes
from zoo.tokenizer.detokenizer import Detokenizer
from zoo.tokenizer.settings import TokenizerSettings
from zoo.tokenizer.tokenizer import Tokenizer, eos_ids_of, load_tokenizer

__all__ = [
    "Backend",
    "Detokenizer",
    "TextBytes",
    "Tokenizer",
    "TokenizerSettings",
    "eos_ids_of",
    "load_tokenizer",
]
