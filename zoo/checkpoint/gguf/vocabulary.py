"""The vocabulary in a GGUF file's metadata, its values checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zoo.checkpoint.gguf.header import Header, shown
from zoo.errors import TokenizerError
from zoo.tokenizer.detokenizer import SPACE
from zoo.tokenizer.settings import AddedToken, TokenizerSettings

KEY = "tokenizer.ggml."
# Bytes with merges; sentencepiece's byte pairs and its Unigram; BERT's WordPiece.
MODELS = ("gpt2", "llama", "t5", "bert")
# The kinds of tokens, which are sentencepiece's.
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
SPECIAL = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "sep_token": "seperator_token_id",
    "pad_token": "padding_token_id",
    "cls_token": "cls_token_id",
    "mask_token": "mask_token_id",
}
ENDS = ("eos_token_id", "eot_token_id", "eom_token_id")  # of a text, a turn, a message
TYPES = {str: "text", int: "an integer", float: "a float", bool: "true or false", tuple: "a list"}


class GGUFVocabulary:
    """The text of each token and its kind, in the order of their ids; `special` tokens by name.

    TokenizerError names the key whose value cannot be followed.
    """

    def __init__(self, header: Header) -> None:
        self.path = header.path
        self.architecture = header.metadata.get("general.architecture")
        self._metadata = header.metadata
        # A token without text has the name that llama.cpp gives it.
        texts = self.array("tokens", str, None)
        self.tokens = [text or f"[EMPTY_{id}]" for id, text in enumerate(texts)]
        if len(set(self.tokens)) < len(self.tokens):
            raise self.error("tokens", "has a token twice")
        self.kinds: Sequence[int] = self.array("token_type", int, [NORMAL] * len(self.tokens))
        strange = next((kind for kind in self.kinds if not 0 <= kind <= BYTE), None)
        if strange is not None:
            raise self.error("token_type", f"holds {strange}, which is none of the kinds 1 to {BYTE}")
        if header.metadata.get(KEY + "model") == "bert":
            self.tokens = [_word_piece(*pair) for pair in zip(self.tokens, self.kinds, strict=True)]
        self.special = {
            name: self.tokens[id] for name, key in SPECIAL.items() if (id := self.id(key)) is not None
        }

    def error(self, key: str, why: str) -> TokenizerError:
        """The error that a key's value deserves, to be raised."""
        return TokenizerError(f"{self.path}: {KEY}{key} {why}")

    def value(self, key: str, kind: type, default: Any) -> Any:
        """A value of the right type; TokenizerError for another."""
        value = self._metadata.get(KEY + key, default)
        if value is not default and type(value) is not kind:
            raise self.error(key, f"must be {TYPES[kind]}, got {type(value).__name__}")
        return value

    def array(self, key: str, kind: type, default: Sequence[Any] | None) -> Sequence[Any]:
        """Values of one type, as many as `default` has; required without one."""
        values = self.value(key, tuple, default)
        if values is None:
            raise self.error(key, "is missing")
        if values and type(values[0]) is not kind:
            raise self.error(key, f"must be a list, each {TYPES[kind]}")
        if default is not None and len(values) != len(default):
            raise self.error(key, f"has {len(values)} values for {len(default)} tokens")
        return values

    def id(self, key: str) -> int | None:
        """The id of a special token; None without one, and for one beyond the vocabulary, as many files name."""
        id = self.value(key, int, None)
        return id if id is not None and 0 <= id < len(self.tokens) else None

    @property
    def model(self) -> str:
        """The tokenizer's algorithm: one of `MODELS`. TokenizerError for another."""
        model: str = self.value("model", str, None)
        if model not in MODELS:
            raise self.error("model", f"{shown(model)} is not implemented; known: {', '.join(MODELS)}")
        return model

    @property
    def ends(self) -> list[int]:
        """The ids that end a text, each by itself."""
        return [id for id in map(self.id, ENDS) if id is not None]

    @property
    def chat_template(self) -> str | None:
        """The Jinja source that lays out a conversation."""
        template = self._metadata.get("tokenizer.chat_template")
        return template if isinstance(template, str) else None

    def of(self, kind: int) -> dict[int, str]:
        """The tokens of a kind by id."""
        return {id: self.tokens[id] for id, other in enumerate(self.kinds) if other == kind}

    def settings(self, values: Mapping[str, Any]) -> TokenizerSettings:
        """The same as a folder's settings. Control tokens are matched whole, and left out of a decoded text."""
        added = [AddedToken(text, id) for id, text in self.of(CONTROL).items()]
        return TokenizerSettings(self.path, values, self.special, (), tuple(added))


def _word_piece(text: str, kind: int) -> str:
    """A token of BERT's as its own vocabulary has it.

    There, what goes on with a word begins with ##; in a GGUF file, what begins one has a visible space.
    """
    if kind == CONTROL or (text.startswith("[") and text.endswith("]") and len(text) > 2):
        return text
    return text[1:] if text.startswith(SPACE) and text != SPACE else "##" + text
