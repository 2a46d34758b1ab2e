"""Tokenizers of the `tokenizers` library: from `tokenizer.json`, or the files that came before it.

With the bytes of their tokens: of one token, and of a vocabulary where decoding only joins the bytes of tokens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import AddedToken as LibraryToken
from tokenizers import Encoding, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers.decoders import Decoder

from zoo.errors import TokenizerError
from zoo.tokenizer.backend import Backend, TextBytes
from zoo.tokenizer.detokenizer import (
    ByteFallback,
    ByteLevel,
    CleanUp,
    Detokenizer,
    HoldingDetokenizer,
    TokenDetokenizer,
    clean_up,
    decoder_of,
    decoding_stages,
    flat,
)
from zoo.tokenizer.guards import GuardedDetokenizer, check_growth, hide_panics, library_errors, probe
from zoo.tokenizer.settings import FLAGS, TokenizerSettings, read_bytes, read_text, read_vocabulary

# Without tokenizer.json, only the name of a class tells the pre-tokenization and special tokens. These classes follow the
# rules below; any other would be tokenized wrongly without an error.
_CLASSES = {
    "merges.txt": ("GPT2Tokenizer", "CodeGenTokenizer", "OpenAIGPTTokenizer"),
    "vocab.txt": ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer"),
    "spiece.model": ("T5Tokenizer", "MT5Tokenizer", "UMT5Tokenizer", "LlamaTokenizer"),
}


class TokenizersBackend(Backend):
    """A `tokenizers.Tokenizer`, with the special and added tokens that the settings name."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        settings: TokenizerSettings,
        special_tokens: dict[str, str],
        path: Path | None = None,
    ) -> None:
        """`path` is what the tokenizer was read from, named in errors."""
        self.tokenizer = tokenizer
        self.path = path or settings.path
        self.special_tokens = special_tokens
        # Many published files have the limits of a training run; a prompt must never be truncated or padded.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._add_tokens(settings)
        self._mark_special({*special_tokens.values(), *settings.extra_special_tokens})
        added = tokenizer.get_added_tokens_decoder()
        # The library skips ids by the text of their tokens, and the text of an added token may be normalized.
        texts = {token.content for token in added.values() if token.special}
        self.special_ids = frozenset(id for id in added if tokenizer.id_to_token(id) in texts)
        self._written = {id: token.content for id, token in added.items()}
        self.vocab_size = max([tokenizer.get_vocab_size(with_added_tokens=True), *(id + 1 for id in added)])
        # transformers does not clean up byte-pair text, where it would remove spaces of the text.
        self.kind = type(tokenizer.model).__name__
        self.clean_up = bool(settings.flag("clean_up_tokenization_spaces", False)) and self.kind != "BPE"

    def encode(self, text: str, special_tokens: bool) -> list[int]:
        if special_tokens and self.languages is not None:
            return self.languages.encode(text)
        return self._encode(text, special_tokens).ids

    def _encode(self, text: str, special_tokens: bool) -> Encoding:
        with library_errors(self.path, "its tokenizer cannot encode this text"), hide_panics():
            return self.tokenizer.encode(text, add_special_tokens=special_tokens)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        with library_errors(self.path, "its tokenizer cannot decode these ids"), hide_panics():
            text = self.tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens)
        return clean_up(text) if self.clean_up else text

    def id(self, token: str) -> int | None:
        return self.tokenizer.token_to_id(token)

    def token(self, id: int) -> str | None:
        return self.tokenizer.id_to_token(id)

    def detokenizer(self, skip_special_tokens: bool) -> Detokenizer:
        skipped = self.special_ids if skip_special_tokens else frozenset()
        with library_errors(self.path, "its decoder cannot be followed"):
            stages = decoding_stages(self.tokenizer.decoder)
        inner: Detokenizer = HoldingDetokenizer(lambda ids: self.decode(ids, skip_special_tokens))
        if stages is not None:
            stages += [CleanUp()] if self.clean_up else []
            inner = TokenDetokenizer(
                lambda id: None if id in skipped else self.tokenizer.id_to_token(id), stages
            )
        return GuardedDetokenizer(inner, self.path)

    def token_bytes(self, id: int) -> bytes | None:
        if id in self._written:
            return self._written[id].encode("utf-8")
        token = self.tokenizer.id_to_token(id)
        with library_errors(self.path, "its decoder cannot be followed"):
            return None if token is None else self._bytes_of(token)

    def text_bytes(self) -> TextBytes | None:
        with library_errors(self.path, "its decoder cannot be followed"):
            altered_first = None if self.clean_up else altered_first_of(self.tokenizer.decoder)
            if altered_first is None:
                return None
            # An added token goes through the decoder, too, which may change it.
            texts = (None if id in self.special_ids else self.token(id) for id in range(self.vocab_size))
            tokens = tuple(None if text is None else self._bytes_of(text) for text in texts)
        altered = frozenset(i for i, token in enumerate(tokens) if token and altered_first(token))
        return TextBytes(tokens, altered)

    def offsets(self, text: str) -> list[tuple[int, int]] | None:
        return self._encode(text, special_tokens=False).offsets

    @cached_property
    def _bytes_of(self) -> Callable[[str], bytes | None]:
        return token_bytes_of(self.tokenizer.decoder)

    def _add_tokens(self, settings: TokenizerSettings) -> None:
        """Append the added tokens that the vocabulary lacks; TokenizerError when their ids are not the next ones."""
        for token in settings.added_tokens:
            if self.tokenizer.token_to_id(token.content) is None:
                flags = {flag: getattr(token, flag) for flag in FLAGS}
                self.tokenizer.add_tokens([LibraryToken(token.content, **flags)])
                id = self.tokenizer.token_to_id(token.content)
                if id != token.id:
                    raise TokenizerError(
                        f"{settings.path}: added token {token.content!r} has id {token.id}, "
                        f"but the vocabulary goes on at {id}"
                    )

    def _mark_special(self, texts: set[str]) -> None:
        """Mark the tokens as special that the settings call so, if the vocabulary has them."""
        added = self.tokenizer.get_added_tokens_decoder()
        for text in sorted(texts):
            id = self.tokenizer.token_to_id(text)
            known = added.get(id) if id is not None else None
            if id is None or not text or (known is not None and known.special):
                continue
            kept = {flag: getattr(known, flag) for flag in FLAGS} if known else {"normalized": False}
            self.tokenizer.add_special_tokens([LibraryToken(text, **kept | {"special": True})])


def from_json(path: Path, settings: TokenizerSettings) -> TokenizersBackend:
    """The tokenizer of a `tokenizer.json`, whose post-processor adds the special tokens around a text."""
    data = read_bytes(path)
    with library_errors(path, "not a tokenizer"), hide_panics():
        tokenizer = Tokenizer.from_buffer(data)
        backend = TokenizersBackend(tokenizer, settings, settings.special_tokens, path)
    check_growth(path, tokenizer)
    with library_errors(path, "its parts do not work together"), hide_panics():
        probe(tokenizer)
    return backend


def from_merges(folder: Path, settings: TokenizerSettings) -> TokenizersBackend:
    """The byte-pair tokenizer of `vocab.json` and `merges.txt`: GPT-2's over bytes, or GPT-1's over words.

    GPT-1's vocabulary marks the ends of words with `</w>`; GPT-2's marks their beginnings with `Ġ`.
    """
    merges_path = folder / "merges.txt"
    check_class(merges_path.name, settings)
    vocab = read_vocabulary(folder / "vocab.json")
    merges = _merges(merges_path)
    by_word = sum(token.endswith("</w>") for token in vocab) > sum(token.startswith("Ġ") for token in vocab)
    default = "<unk>" if by_word else "<|endoftext|>"
    names = ("unk_token",) if by_word else ("bos_token", "eos_token", "unk_token")
    special = {name: default for name in names if default in vocab} | settings.special_tokens
    with library_errors(merges_path, "does not fit vocab.json"):
        if by_word:
            unknown = special.get("unk_token")
            tokenizer = Tokenizer(models.BPE(vocab, merges, end_of_word_suffix="</w>", unk_token=unknown))
            tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
            tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
            tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
        else:
            tokenizer = Tokenizer(models.BPE(vocab, merges))
            prefix_space = bool(settings.flag("add_prefix_space", False))
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
            tokenizer.decoder = decoders.ByteLevel()
    backend = TokenizersBackend(tokenizer, settings, special)
    first, last = (
        special.get(name) if settings.flag(f"add_{name}", False) else None
        for name in ("bos_token", "eos_token")
    )
    put_around(backend, first, last)
    return backend


def put_around(backend: TokenizersBackend, first: str | None, last: str | None) -> None:
    """Add a first and a last token to every text, unless they are None or not in the vocabulary."""
    first, last = (
        token if token is not None and backend.id(token) is not None else None for token in (first, last)
    )
    if first or last:
        backend.tokenizer.post_processor = processors.TemplateProcessing(
            single=[part for part in (first, "$A", last) if part],
            special_tokens=[(token, backend.id(token)) for token in {first, last} if token],
        )


def from_word_pieces(path: Path, settings: TokenizerSettings) -> TokenizersBackend:
    """BERT's tokenizer of a `vocab.txt`, whose line numbers are the ids."""
    check_class(path.name, settings)
    lines = read_text(path).split("\n")
    return bert(path, lines[:-1] if lines[-1] == "" else lines, settings)


def bert(path: Path, tokens: Sequence[str], settings: TokenizerSettings) -> TokenizersBackend:
    """BERT's tokenizer of `tokens` in the order of their ids, which `path` holds."""
    vocab = {token: id for id, token in enumerate(tokens)}
    defaults = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")}
    special = defaults | settings.special_tokens
    for name in ("unk_token", "cls_token", "sep_token"):
        if special[name] not in vocab:
            raise TokenizerError(f"{path}: lacks the {name} {special[name]!r}")
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token=special["unk_token"]))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(settings.flag("tokenize_chinese_chars", True)),
        strip_accents=settings.flag("strip_accents", None),
        lowercase=bool(settings.flag("do_lower_case", True)),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    known = {name: text for name, text in special.items() if text in vocab}
    backend = TokenizersBackend(tokenizer, settings, known)
    put_around(backend, special["cls_token"], special["sep_token"])
    return backend


def check_class(file: str, settings: TokenizerSettings) -> None:
    """TokenizerError for a tokenizer class with other rules than those for a folder with only this file."""
    name = settings.tokenizer_class
    known = _CLASSES[file]
    if name not in (None, "PreTrainedTokenizer", "TokenizersBackend", *known):
        raise TokenizerError(
            f"{settings.path}: tokenizer_class {name} needs a tokenizer.json; "
            f"{file} alone serves {', '.join(known)}"
        )


def _merges(path: Path) -> list[tuple[str, str]]:
    """The pairs of a `merges.txt`, best first."""
    merges = []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line or line.startswith("#version"):
            continue
        left, _, right = line.partition(" ")
        if not left or not right or " " in right:
            raise TokenizerError(
                f"{path}: line {number} must be two tokens with a space between, got {line!r}"
            )
        merges.append((left, right))
    return merges


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
