"""What one token of a `tokenizers` file stands for, in bytes: its decoder, applied to that token alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zoo.tokenizer.detokenizer import ByteFallback, ByteLevel, decoder_of, flat

if TYPE_CHECKING:
    from tokenizers.decoders import Decoder

# Steps that work on the text as a whole; what they change is at its ends.
_WHOLE = ("Fuse", "Strip")


def token_bytes_of(decoder: Decoder | None) -> Callable[[str], bytes | None]:
    """A function from a token, as the vocabulary writes it, to its bytes within a text.

    White space that the decoder puts between tokens (WordPiece's, that of `</w>`) belongs to none of them. The function
    gives None where a step of the decoder cannot be applied to one token.
    """
    steps = [] if decoder is None else [_step(spec) for spec in flat(json.loads(decoder.__getstate__()))]

    def converted(token: str) -> bytes | None:
        value: str | bytes | None = token
        for step in steps:
            if not isinstance(value, str):
                break
            value = step(value)
        return value.encode("utf-8") if isinstance(value, str) else value

    return converted


def _step(spec: dict[str, Any]) -> Callable[[str], str | bytes | None]:
    """What one step makes of a token in the middle of a text: text for the next step, or its bytes."""
    kind = spec["type"]
    if kind == "ByteLevel":
        return ByteLevel().bytes_of
    if kind == "ByteFallback":
        return _byte
    if kind == "WordPiece":
        return lambda token: token.removeprefix(spec["prefix"])
    if kind == "BPEDecoder":
        return lambda token: token.removesuffix(spec["suffix"])
    if kind in _WHOLE:
        return lambda token: token
    if kind in ("Metaspace", "Replace"):
        inner = decoder_of(spec)
        return lambda token: inner.decode(["", token])
    return lambda token: None


def _byte(token: str) -> str | bytes:
    found = ByteFallback.byte.fullmatch(token)
    return bytes([int(found[1], 16)]) if found else token
