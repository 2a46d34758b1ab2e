"""Incremental detokenization: text is returned as soon as later ids cannot change it.

Decoding is a chain of stages, each of which turns a list of strings into another. Here a stage takes its list piece by
piece and holds back only what a later piece could still change: the bytes of an unfinished character, the space at the end
of a word. A token costs the same at any position.
"""

from __future__ import annotations

import codecs
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

from tokenizers import decoders
from tokenizers.decoders import Decoder

SPACE = "\u2581"  # the visible space of sentencepiece vocabularies
REPLACEMENT = "\ufffd"
# What "surrogateescape" makes of malformed bytes.
ESCAPED_BYTES = dict.fromkeys(range(0xDC80, 0xDD00), REPLACEMENT)


class Detokenizer(Protocol):
    """Decodes the ids of one text, one at a time."""

    def add(self, id: int) -> str:
        """The text that is certain with this id; "" while it may still change."""
        ...

    def finish(self) -> str:
        """The text that was held back."""
        ...


class DecodingStage(ABC):
    """`push` returns what is certain after more input, `flush` the rest at the end."""

    @abstractmethod
    def push(self, texts: list[str]) -> list[str]: ...

    def flush(self) -> list[str]:
        return []


class TokenDetokenizer:
    """Detokenizer over the strings of tokens; `token` returns None for an id without text."""

    def __init__(self, token: Callable[[int], str | None], stages: Sequence[DecodingStage]) -> None:
        self.token = token
        self.stages = stages

    def add(self, id: int) -> str:
        text = self.token(id)
        if text is None:
            return ""
        texts = [text]
        for stage in self.stages:
            texts = stage.push(texts)
        return "".join(texts)

    def finish(self) -> str:
        texts: list[str] = []
        for stage in self.stages:
            texts = stage.push(texts) + stage.flush()
        return "".join(texts)


class HoldingDetokenizer:
    """Detokenizer for decoders that need all ids: the text comes at the end."""

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self.decode = decode
        self.ids: list[int] = []

    def add(self, id: int) -> str:
        self.ids.append(id)
        return ""

    def finish(self) -> str:
        return self.decode(self.ids)


class VisibleTokenDetokenizer:
    """Detokenizer that writes the special tokens `visible`, by their ids, and skips all others.

    Each of them ends the text before it and begins another, for which `create` makes a detokenizer.
    """

    def __init__(self, create: Callable[[], Detokenizer], visible: Mapping[int, str]) -> None:
        self.create = create
        self.visible = visible
        self.inner = create()

    def add(self, id: int) -> str:
        if id not in self.visible:
            return self.inner.add(id)
        before, self.inner = self.inner.finish(), self.create()
        return before + self.visible[id]

    def finish(self) -> str:
        return self.inner.finish()


class PieceDetokenizer:
    """Detokenizer over sentencepiece pieces, by the rules of its own decoder.

    `piece` returns a byte's value, a piece's text, or None for an id without text. `leading`: which pieces at the start
    lose the space in front, which encoding added.
    """

    def __init__(
        self, piece: Callable[[int], str | int | None], leading: Literal["none", "first", "all"]
    ) -> None:
        self.piece = piece
        self.leading = leading
        self.decoder = codecs.getincrementaldecoder("utf-8")(errors="surrogateescape")

    def add(self, id: int) -> str:
        piece = self.piece(id)
        if piece is None:
            return ""
        if isinstance(piece, int):
            text = self._decode(bytes([piece]))
        else:
            text = self.finish()
            if text:
                self.leading = "none"
            if self.leading != "none" and piece.startswith(SPACE):
                piece = piece[1:]
                if self.leading == "first":
                    self.leading = "none"
            text += piece.replace(SPACE, " ")
        if text:
            self.leading = "none"
        return text

    def finish(self) -> str:
        return self._decode(b"", final=True)

    def _decode(self, data: bytes, final: bool = False) -> str:
        """The characters that are complete. Each byte that belongs to none becomes U+FFFD."""
        return self.decoder.decode(data, final).translate(ESCAPED_BYTES)


def clean_up(text: str) -> str:
    """Text without the spaces before punctuation, as transformers' `clean_up_tokenization` makes it."""
    for spaced in (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're"):
        text = text.replace(spaced, spaced.strip())
    return text


class Each(DecodingStage):
    """Decodes each token by itself; with `by_position`, the first one of a text differently."""

    def __init__(self, decoder: Decoder | None, by_position: bool) -> None:
        # Without a decoder the library puts a space between tokens.
        self.decode = " ".join if decoder is None else decoder.decode
        self.by_position = by_position
        self.before: list[str] = []

    def push(self, texts: list[str]) -> list[str]:
        changed = []
        for text in texts:
            changed.append(self.decode([*self.before, text]))
            self.before = [""] if self.by_position else []
        return changed


class ByteFallback(DecodingStage):
    """Turns a run of tokens such as `<0xE4>` into its characters, or into U+FFFD for each byte if malformed.

    The library replaces a whole run for one bad byte, so a run is held until it ends.
    """

    # Rust's integer parser, which the library uses, takes a plus sign.
    byte = re.compile(r"<0x([0-9A-Fa-f]{2}|\+[0-9A-Fa-f])>")

    def __init__(self) -> None:
        self.run = bytearray()

    def push(self, texts: list[str]) -> list[str]:
        changed = []
        for text in texts:
            match = self.byte.fullmatch(text)
            if match:
                self.run.append(int(match[1], 16))
            else:
                changed += [*self.flush(), text]
        return changed

    def flush(self) -> list[str]:
        run, self.run = self.run, bytearray()
        if not run:
            return []
        try:
            return [run.decode("utf-8")]
        except UnicodeDecodeError:
            return [REPLACEMENT] * len(run)


class ByteLevel(DecodingStage):
    """Turns the printable stand-ins of byte-level vocabularies back into bytes, and those into text."""

    def __init__(self) -> None:
        self.values = byte_values()
        self.decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, texts: list[str]) -> list[str]:
        return [self.decoder.decode(self.bytes_of(text)) for text in texts]

    def flush(self) -> list[str]:
        return [self.decoder.decode(b"", final=True)]

    def bytes_of(self, token: str) -> bytes:
        """The bytes of one token, as the vocabulary writes it."""
        try:
            return bytes([self.values[character] for character in token])
        except KeyError:  # an added token, written as it is
            return token.encode("utf-8")


class WordEnd(DecodingStage):
    """Turns the mark at the end of a word into a space, except at the end of the text."""

    def __init__(self, suffix: str) -> None:
        self.suffix = suffix
        self.pending = ""

    def push(self, texts: list[str]) -> list[str]:
        changed = []
        for text in texts:
            changed.append(self.pending.replace(self.suffix, " "))
            certain, mark, rest = text.partition(self.suffix)
            changed.append(certain)
            self.pending = mark + rest
        return changed

    def flush(self) -> list[str]:
        return [self.pending.replace(self.suffix, "")]


class StripLeft(DecodingStage):
    """Takes up to `most` characters `content` from the start of the text."""

    def __init__(self, content: str, most: int) -> None:
        self.content = content
        self.left = most

    def push(self, texts: list[str]) -> list[str]:
        text = "".join(texts)
        while self.left and text:
            if not text.startswith(self.content):
                self.left = 0
                break
            text = text[len(self.content) :]
            self.left -= 1
        return [text]


class CleanUp(DecodingStage):
    """Applies `clean_up`, keeping back the end of the text while a replacement could extend over it."""

    def __init__(self) -> None:
        self.pending = ""

    def push(self, texts: list[str]) -> list[str]:
        self.pending += "".join(texts)
        end = len(self.pending)
        while end > 0 and not self._settled(end):
            end = max(self.pending.rfind(" ", 0, end), 0)
        ready, self.pending = self.pending[:end], self.pending[end:]
        return [clean_up(ready)]

    def flush(self) -> list[str]:
        ready, self.pending = self.pending, ""
        return [clean_up(ready)]

    def _settled(self, end: int) -> bool:
        """Whether no replacement can begin before `end` and stop after it.

        Each begins with a space and has at most three other characters in a row. So none can where three
        follow the last space, nor where that space fits none and stays where it is: the character after it is
        in none, and no "'" before it can take it away.
        """
        space = self.pending.rfind(" ", 0, end)
        word = self.pending[space + 1 : end]
        if space < 0 or len(word) >= 3:
            return True
        return bool(word) and word[0] not in ".?!,'n" and self.pending[space - 1 : space] not in ("'", " ")


def decoding_stages(decoder: Decoder | None) -> list[DecodingStage] | None:
    """The stages of a `tokenizers` decoder, None for the rare one that can only be applied to the whole."""
    if decoder is None:
        return [Each(None, by_position=True)]
    stages: list[DecodingStage] = []
    joined = False  # from here on there are no tokens any more, only text
    specs = flat(json.loads(decoder.__getstate__()))
    for index, spec in enumerate(specs):
        kind = spec["type"]
        if joined:
            if kind != "Strip" or spec["stop"]:
                return None
            stages.append(StripLeft(spec["content"], spec["start"]))
        elif kind in ("Metaspace", "WordPiece"):
            stages.append(Each(decoder_of(spec), by_position=True))
        elif kind in ("Replace", "Strip"):
            stages.append(Each(decoder_of(spec), by_position=False))
        elif kind == "ByteFallback":
            stages.append(ByteFallback())
        elif kind == "BPEDecoder" and spec["suffix"] and index == len(specs) - 1:
            stages.append(WordEnd(spec["suffix"]))
        elif kind == "ByteLevel":
            stages.append(ByteLevel())
            joined = True
        elif kind == "Fuse":
            joined = True
        else:
            return None
    return stages


def flat(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """The description of a decoder, normalizer or pre-tokenizer as a list, with nested sequences flattened."""
    if spec["type"] != "Sequence":
        return [spec]
    inside = next(spec[key] for key in ("decoders", "normalizers", "pretokenizers") if key in spec)
    return [part for inner in inside for part in flat(inner)]


def decoder_of(spec: dict[str, Any]) -> Decoder:
    """The library's decoder that one description stands for."""
    decoder: Decoder = decoders.Fuse()  # any kind will do: the state replaces it
    decoder.__setstate__(json.dumps(spec).encode("utf-8"))
    return decoder


def byte_values() -> dict[str, int]:
    """The byte that each character of a byte-level vocabulary stands for (GPT-2's `bytes_to_unicode`).

    Printable bytes of Latin-1 stand for themselves; the others, in order, are the characters from U+0100 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}
