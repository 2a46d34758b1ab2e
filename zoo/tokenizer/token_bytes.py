"""The bytes that the tokens of a `tokenizer.json` stand for: of one token, and where decoding only joins those of all."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tokenizers.decoders import Decoder

from zoo.tokenizer.detokenizer import ByteFallback, ByteLevel, decoder_of, flat

# Stages that work on the whole text and change only its ends.
_WHOLE_TEXT = ("Fuse", "Strip")


def token_bytes_of(decoder: Decoder | None) -> Callable[[str], bytes | None]:
    """A function from a token, as the vocabulary writes it, to its bytes within a text.

    White space that the decoder puts between tokens (WordPiece, `</w>`) belongs to none of them. The function returns
    None where a stage of the decoder cannot be applied to one token.
    """
    stages = [] if decoder is None else [_stage(spec) for spec in flat(json.loads(decoder.__getstate__()))]

    def converted(token: str) -> bytes | None:
        value: str | bytes | None = token
        for stage in stages:
            if not isinstance(value, str):
                break
            value = stage(value)
        return value.encode("utf-8") if isinstance(value, str) else value

    return converted


def altered_first_of(decoder: Decoder | None) -> Callable[[bytes], bool] | None:
    """A function: whether a token of these bytes may add fewer at the start of a text.

    None where decoding does more than join the bytes of tokens: it adds or removes characters between tokens, or looks at
    several at once.
    """
    if decoder is None:  # the library then puts a space between tokens
        return None
    joined = run = spaced = False
    stripped = b""
    for spec in flat(json.loads(decoder.__getstate__())):
        kind = spec["type"]
        if kind == "Strip" and joined and not spec["stop"]:
            stripped = spec["content"].encode("utf-8") if spec["start"] else stripped
        elif kind in ("ByteLevel", "Fuse") and not joined:
            joined = True
        elif kind == "ByteFallback" and not joined:
            run = True
        elif kind in ("Metaspace", "Replace") and not joined and not run:
            # Metaspace drops all that is a space in the first token, wherever it stands in it.
            spaced = spaced or (kind == "Metaspace" and spec["prepend_scheme"] != "never")
        else:
            return None
    return lambda token: (spaced and b" " in token) or bool(stripped and token.startswith(stripped))


def _stage(spec: dict[str, Any]) -> Callable[[str], str | bytes | None]:
    """One stage of a decoder for a token within a text: returns text for the next stage, or the bytes."""
    kind = spec["type"]
    if kind == "ByteLevel":
        return ByteLevel().bytes_of
    if kind == "ByteFallback":
        return _byte
    if kind == "WordPiece":
        return lambda token: token.removeprefix(spec["prefix"])
    if kind == "BPEDecoder":
        return lambda token: token.removesuffix(spec["suffix"])
    if kind in _WHOLE_TEXT:
        return lambda token: token
    if kind in ("Metaspace", "Replace"):
        inner = decoder_of(spec)
        return lambda token: inner.decode(["", token])
    return lambda token: None


def _byte(token: str) -> str | bytes:
    found = ByteFallback.byte.fullmatch(token)
    return bytes([int(found[1], 16)]) if found else token
