"""What tokens stand for in bytes: one token by itself, and all of a vocabulary where texts are these bytes joined."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zoo.frozen import Frozen, frozen
from zoo.tokenizer.detokenizer import ByteFallback, ByteLevel, decoder_of, flat

if TYPE_CHECKING:
    from tokenizers.decoders import Decoder

# Steps that work on the text as a whole; what they change is at its ends.
_WHOLE = ("Fuse", "Strip")


@frozen()
class TextBytes(Frozen):
    """What each id adds to a text: decoded ids are these bytes, one after the other.

    `tokens` has an entry an id, None for one that adds nothing (a special token) or does not always add the same.
    `altered_first` are the ids that add less than that where they are the first of a text: a sentencepiece decoder takes
    the space away that encoding put there.
    """

    tokens: tuple[bytes | None, ...]
    altered_first: frozenset[int] = frozenset()


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


def altered_first_of(decoder: Decoder | None) -> Callable[[bytes], bool] | None:
    """Whether a token of these bytes may add less as the first of a text; None where texts are not tokens' bytes joined.

    They are not where the decoder puts or takes characters at the borders of tokens, or looks at several at once.
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
