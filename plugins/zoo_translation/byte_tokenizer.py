"""ByT5's tokenizer, which has no vocabulary: a token is a byte (Xue et al., 2022, arXiv:2105.13626). Imports no mlx.

The first ids are padding, end and unknown; byte b has id b + 3; added tokens come after the bytes.
"""

import codecs
import re

from zoo.tokenizer import Backend

SPECIAL = ("pad_token", "eos_token", "unk_token")  # ids 0, 1, 2
DEFAULTS = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
BYTES = range(len(SPECIAL), len(SPECIAL) + 256)


class ByteTokenizer(Backend):
    """Text to UTF-8 bytes and back."""

    kind = "bytes"

    def __init__(self, special_tokens, added=()):
        self.special_tokens = {**DEFAULTS, **special_tokens}
        named = enumerate(self.special_tokens[name] for name in SPECIAL)
        others = ((token.id, token.content) for token in added if token.id not in BYTES)
        self.tokens = {**dict(named), **dict(others)}
        self.ids = {text: id for id, text in self.tokens.items()}
        self.vocab_size = max(BYTES.stop, *(id + 1 for id in self.tokens))
        # The three swallow the spaces around them, as the reference's do.
        stripped = "|".join(re.escape(self.special_tokens[name]) for name in SPECIAL)
        plain = "|".join(re.escape(token.content) for token in added if token.id not in range(BYTES.stop))
        self.pattern = re.compile(rf"\s*({stripped})\s*" + (rf"|({plain})" if plain else ""))

    def encode(self, text, special_tokens):
        ids, end = [], 0
        for found in self.pattern.finditer(text):
            ids += self._bytes(text[end : found.start()])
            ids.append(self.ids[found[found.lastindex or 0]])
            end = found.end()
        ids += self._bytes(text[end:])
        return [*ids, self.ids[self.special_tokens["eos_token"]]] if special_tokens else ids

    def _bytes(self, text):
        return [byte + BYTES.start for byte in text.encode("utf-8")]

    def id(self, token):
        if token in self.ids:
            return self.ids[token]
        return ord(token) + BYTES.start if len(token) == 1 and ord(token) < 256 else None

    def token(self, id):
        return self.tokens.get(id, chr(id - BYTES.start) if id in BYTES else None)

    def token_bytes(self, id):
        return bytes([id - BYTES.start]) if id in BYTES else self.tokens.get(id, "").encode("utf-8")

    def detokenizer(self, skip_special_tokens):
        return ByteDetokenizer(self.tokens, skip_special_tokens)


class ByteDetokenizer:
    """Ids to text one by one: the bytes of an unfinished character wait for the rest, what is no character is left out."""

    def __init__(self, tokens, skip_special_tokens):
        self.tokens = {} if skip_special_tokens else tokens
        self.decoder = codecs.getincrementaldecoder("utf-8")(errors="ignore")

    def add(self, id):
        data = bytes([id - BYTES.start]) if id in BYTES else self.tokens.get(id, "").encode("utf-8")
        return self.decoder.decode(data)

    def finish(self):
        return self.decoder.decode(b"", final=True)


def read(folder, settings):
    """The tokenizer of a folder whose tokenizer_config.json names ByT5Tokenizer."""
    return ByteTokenizer(settings.special_tokens, settings.added_tokens)
