"""Tokenizers of the `sentencepiece` library: a `tokenizer.model` or `spiece.model` by itself."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from zoo.errors import TokenizerError
from zoo.tokenizer.backend import Backend, TextBytes
from zoo.tokenizer.detokenizer import SPACE, Detokenizer, PieceDetokenizer
from zoo.tokenizer.guards import library_errors
from zoo.tokenizer.huggingface import check_class
from zoo.tokenizer.settings import AddedToken, TokenizerSettings, read_bytes

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

# Protocol buffers merge a message that occurs twice: these bytes after a model set its
# `normalizer_spec.add_dummy_prefix` (field 3 in field 3) to false.
_WITHOUT_PREFIX = b"\x1a\x02\x18\x00"


class SentencePieceBackend(Backend):
    """A sentencepiece model (Unigram or byte pairs). Added tokens are split off before it encodes the text.

    The model's own normalizer differs from transformers' conversion of the model in one case: a text that begins with a
    space keeps it beside the space that the model adds.
    """

    kind = "sentencepiece"

    def __init__(self, path: Path, settings: TokenizerSettings, proto: bytes | None = None) -> None:
        """Read the model from `proto`, its serialized form, or from the file at `path` where `proto` is None."""
        if path.name == "spiece.model":
            check_class(path.name, settings)
        proto = read_bytes(path) if proto is None else proto
        self._model = load_sentencepiece(path, proto)
        self._inner = load_sentencepiece(path, proto + _WITHOUT_PREFIX)
        self._size: int = self._model.get_piece_size()
        ids = {
            "bos_token": self._model.bos_id(),
            "eos_token": self._model.eos_id(),
            "unk_token": self._model.unk_id(),
        }
        self.special_tokens = {name: self._model.id_to_piece(id) for name, id in ids.items() if id >= 0}
        self.special_tokens |= settings.special_tokens
        # The tokens that are split off, by id and by text: added ones, and the model's special ones.
        self._added = {token.id: token for token in settings.added_tokens if token.content}
        self._added_ids = {token.content: token.id for token in self._added.values()}
        extra = (token.content for token in settings.extra_special_tokens)
        for text in (*self.special_tokens.values(), *extra):
            id = self._piece_id(text) if text and text not in self._added_ids else None
            if id is not None and id not in self._added:
                self._added[id] = AddedToken(text, id)
                self._added_ids[text] = id
        split_special = settings.flag("split_special_tokens", False)
        matched = [token for token in self._added.values() if not (split_special and token.special)]
        self._split = added_token_pattern(matched)
        self._leading: Literal["none", "first", "all"] = "none"
        if settings.flag("add_prefix_space", True):
            self._leading = self._leading_space()
        else:
            self._model = self._inner
        self.vocab_size = max([self._size, *(id + 1 for id in self._added)])
        # LLaMA's defaults; a model without a start piece (T5) marks the end of its texts instead.
        has_start = ids["bos_token"] >= 0
        self._prefix = self._edge("bos_token", settings.flag("add_bos_token", has_start))
        self._suffix = self._edge("eos_token", settings.flag("add_eos_token", not has_start))
        # "Legacy" adds a space after every special token, and not only at the start.
        self._legacy = bool(settings.flag("legacy", not has_start))

    def encode(self, text: str, special_tokens: bool) -> list[int]:
        ids: list[int] = []
        start = 0
        for match in self._split.finditer(text):
            ids += self._encode_plain(text[start : match.start()], start)
            found = match.group()
            ids.append(self._added_ids[found if found in self._added_ids else found.strip()])
            start = match.end()
        ids += self._encode_plain(text[start:], start)
        return [*self._prefix, *ids, *self._suffix] if special_tokens else ids

    def id(self, token: str) -> int | None:
        return self._added_ids[token] if token in self._added_ids else self._piece_id(token)

    def token(self, id: int) -> str | None:
        if id in self._added:
            return self._added[id].content
        return self._model.id_to_piece(id) if 0 <= id < self._size else None

    def detokenizer(self, skip_special_tokens: bool) -> Detokenizer:
        return PieceDetokenizer(lambda id: self._text(id, skip_special_tokens), self._leading)

    def _text(self, id: int, skip_special_tokens: bool) -> str | int | None:
        """The text of an id, the value of a byte, or None for an id without text."""
        added = self._added.get(id)
        if added is not None:
            return None if added.special and skip_special_tokens else added.content
        if not 0 <= id < self._size or (self._model.is_control(id) and skip_special_tokens):
            return None
        text: str = self._model.id_to_piece(id)
        return int(text[3:5], 16) if self._model.is_byte(id) else text

    def token_bytes(self, id: int) -> bytes | None:
        if id in self._added:
            return self._added[id].content.encode("utf-8")
        return piece_bytes(self._model, id) if 0 <= id < self._size else None

    def text_bytes(self) -> TextBytes:
        tokens: list[bytes | None] = []
        altered_first = set()
        for id in range(self.vocab_size):
            piece = self._text(id, skip_special_tokens=True)
            unknown = id < self._size and self._model.is_unknown(id)
            if isinstance(piece, str) and piece.startswith(SPACE) and self._leading != "none":
                altered_first.add(id)
            if piece is None or unknown:
                tokens.append(None)
            else:
                tokens.append(
                    bytes([piece]) if isinstance(piece, int) else piece.replace(SPACE, " ").encode()
                )
        return TextBytes(tuple(tokens), frozenset(altered_first))

    def _encode_plain(self, text: str, start: int) -> list[int]:
        """The ids of a part without added tokens that begins at character `start` of the text."""
        if not text:
            return []
        # A model that removes repeated white space would lose the text's own without the prefix.
        prefixed = self._legacy or start == 0 or (self._leading == "all" and text.startswith(" "))
        return (self._model if prefixed else self._inner).encode(text)

    def _piece_id(self, token: str) -> int | None:
        """The id of a piece of the model itself; the library answers "unknown" for any other text."""
        id = self._model.piece_to_id(token)
        return id if 0 <= id < self._size and self._model.id_to_piece(id) == token else None

    def _edge(self, name: str, wanted: bool | None) -> list[int]:
        """The ids that stand at one end of every text."""
        id = self.id(self.special_tokens[name]) if wanted and name in self.special_tokens else None
        return [] if id is None else [id]

    def _leading_space(self) -> Literal["none", "first", "all"]:
        """Which spaces the model's decoder removes at the start of a text, found by trying it."""
        space = self._piece_id(SPACE)
        if space is not None:
            text = self._model.decode([space, space])
            return "all" if text == "" else "first" if text == " " else "none"
        spaced = next((id for id in range(self._size) if self._model.id_to_piece(id).startswith(SPACE)), None)
        if spaced is None or self._model.decode([spaced]).startswith(" "):
            return "none"
        return "first"


def load_sentencepiece(path: Path, proto: bytes) -> SentencePieceProcessor:
    """The model of a protocol buffer; TokenizerError, naming the file, where it is damaged."""
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError:
        raise TokenizerError(f"{path}: needs the sentencepiece package (pip install sentencepiece)") from None
    with library_errors(path, "not a sentencepiece model"):
        if not proto:
            raise ValueError("it is empty")
        return SentencePieceProcessor(model_proto=proto)


def piece_bytes(model: SentencePieceProcessor, id: int) -> bytes | None:
    """The bytes of a piece of a sentencepiece model, None for the unknown piece."""
    if model.is_unknown(id):
        return None
    piece: str = model.id_to_piece(id)
    return bytes([int(piece[3:5], 16)]) if model.is_byte(id) else piece.replace(SPACE, " ").encode("utf-8")


def added_token_pattern(tokens: Iterable[AddedToken]) -> re.Pattern[str]:
    """The pattern of added tokens in a text, the longest first, with the white space that belongs to them."""
    forms = []
    # An alternative earlier in the pattern wins, so that the longest token must come first.
    for token in sorted(tokens, key=lambda token: -len(token.content)):
        left, right = (r"(?<!\w)", r"(?!\w)") if token.single_word else ("", "")
        left, right = (r"\s*" if token.lstrip else "") + left, right + (r"\s*" if token.rstrip else "")
        forms.append(left + re.escape(token.content) + right)
    return re.compile("|".join(forms) or "(?!)")
