"""Tokenizers of the `tokenizers` library: from `tokenizer.json`, or the files that came before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

from tokenizers import AddedToken as LibraryToken
from tokenizers import Encoding, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from zoo.errors import TokenizerError, warn
from zoo.tokenizer.backend import Backend, TextBytes, TypedIds
from zoo.tokenizer.classes import (
    CLASSES,
    TokenizerClass,
    apply_class,
    class_of,
    library_token,
    without_added_tokens,
)
from zoo.tokenizer.detokenizer import (
    CleanUp,
    Detokenizer,
    HoldingDetokenizer,
    TokenDetokenizer,
    clean_up,
    decoding_stages,
)
from zoo.tokenizer.guards import GuardedDetokenizer, check_growth, hide_panics, library_errors, probe
from zoo.tokenizer.settings import (
    FLAGS,
    SPECIAL_NAMES,
    AddedToken,
    TokenizerSettings,
    read_bytes,
    read_text,
)
from zoo.tokenizer.token_bytes import altered_first_of, token_bytes_of

_CLEANED = "clean_up_tokenization_spaces"

# Without tokenizer.json, only the name of a class tells the pre-tokenization and special tokens. These classes follow the
# rules below; any other would be tokenized wrongly without an error.
_CLASSES = {
    "vocab.txt": ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer"),
    "spiece.model": ("T5Tokenizer", "MT5Tokenizer", "UMT5Tokenizer", "LlamaTokenizer"),
}


LONG = 2**14  # characters of a text for which other threads should not wait


def cut_lengths(lengths: Sequence[int], most: int) -> list[int]:
    """The lengths of one or two texts cut to `most` tokens in all: the longer one is cut first, then both alike."""
    if len(lengths) == 1:
        return [min(lengths[0], most)]
    shorter, longer = sorted(lengths)
    if shorter + longer > most:
        shorter = min(shorter, most // 2)
        longer = most - shorter
    return [shorter, longer] if lengths[0] <= lengths[1] else [longer, shorter]


class TokenizersBackend(Backend):
    """A `tokenizers.Tokenizer`, with the special and added tokens that the settings name."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        settings: TokenizerSettings,
        special_tokens: dict[str, str],
        path: Path | None = None,
        rules: TokenizerClass | None = None,
    ) -> None:
        """`path` is what the tokenizer was read from, named in errors; `rules` those of its class beside its file."""
        self.tokenizer = tokenizer
        self.path = path or settings.path
        self.special_tokens = special_tokens
        # Many published files have the limits of a training run; a prompt must never be truncated or padded.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._add_tokens(settings, rules)
        tokenizer = self.tokenizer
        tokenizer.encode_special_tokens = bool(settings.flag("split_special_tokens", False))
        added = tokenizer.get_added_tokens_decoder()
        # The library skips ids by the text of their tokens, and the text of an added token may be normalized.
        texts = {token.content for token in added.values() if token.special}
        self.special_ids = frozenset(id for id in added if tokenizer.id_to_token(id) in texts)
        self._written = {id: token.content for id, token in added.items()}
        self.vocab_size = max([tokenizer.get_vocab_size(with_added_tokens=True), *(id + 1 for id in added)])
        # transformers does not clean up byte-pair text, where it would remove spaces of the text, unless told twice.
        self.kind = type(tokenizer.model).__name__
        self.cuts_left = settings.values.get("truncation_side") == "left"
        cleaned = _CLEANED if self.kind != "BPE" else f"{_CLEANED}_for_bpe_even_though_it_will_corrupt_output"
        self.clean_up = all(settings.flag(key, False) for key in (_CLEANED, cleaned))

    def encode(self, text: str, special_tokens: bool) -> list[int]:
        if special_tokens and self.languages is not None:
            return self.languages.encode(text)
        if len(text) <= LONG:
            return self._encode(text, special_tokens).ids
        # Only this call lets other threads run meanwhile. It encodes in a third of the time, without offsets.
        with library_errors(self.path, "its tokenizer cannot encode this text"):
            (encoding,) = self.tokenizer.encode_batch_fast([text], add_special_tokens=special_tokens)
        return encoding.ids

    def _encode(self, text: str, special_tokens: bool) -> Encoding:
        with library_errors(self.path, "its tokenizer cannot encode this text"), hide_panics():
            return self.tokenizer.encode(text, add_special_tokens=special_tokens)

    def encode_pair(self, first: str, second: str | None, most: int | None) -> TypedIds:
        texts = [text for text in (first, second) if text is not None]
        with library_errors(self.path, "its tokenizer cannot encode this text"), hide_panics():
            encoding = self.tokenizer.encode(first, second)
            cut = most is not None and len(encoding.ids) > most
            if most is not None and cut:
                parts = [self.tokenizer.encode(text, add_special_tokens=False) for text in texts]
                added = self.tokenizer.num_special_tokens_to_add(len(texts) == 2)
                for part, length in zip(
                    parts, cut_lengths(list(map(len, parts)), max(most - added, 0)), strict=True
                ):
                    part.truncate(length, direction="left" if self.cuts_left else "right")
                encoding = self.tokenizer.post_process(parts[0], parts[1] if len(parts) == 2 else None)
        added_mask = zip(encoding.offsets, encoding.special_tokens_mask, strict=True)
        offsets = tuple(None if added else offset for offset, added in added_mask)
        return TypedIds(tuple(encoding.ids), tuple(encoding.type_ids), offsets, cut)

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

    def _add_tokens(self, settings: TokenizerSettings, rules: TokenizerClass | None) -> None:
        """Give the added tokens the flags that the settings say; TokenizerError where ids cannot be kept."""
        known = self.tokenizer.get_added_tokens_decoder()
        ids = {token.content: id for id, token in known.items()}
        tokens = self._flagged_tokens(settings, rules.plain if rules is not None else "")
        if rules is not None:
            self.tokenizer = without_added_tokens(self.tokenizer)
        else:
            old = {token.content: repr(token) for token in known.values()}
            tokens = {text: token for text, token in tokens.items() if repr(token) != old.get(text)}
        self.tokenizer.add_tokens(list(tokens.values()))
        for text, id in {token.content: token.id for token in settings.added_tokens if token.content}.items():
            found = self.tokenizer.token_to_id(text)
            if id != found:
                raise TokenizerError(
                    f"{settings.path}: added token {text!r} has id {id}, but the vocabulary gives it {found}"
                )
        for text, id in ids.items():
            if text in tokens and self.tokenizer.token_to_id(text) != id:
                raise TokenizerError(
                    f"{self.path}: added token {text!r} has id {id}, but ids before it are left out"
                )

    def _flagged_tokens(self, settings: TokenizerSettings, plain: str) -> dict[str, LibraryToken]:
        """The added tokens by text, in the order of their ids: the file's, the settings', and special ones of the vocabulary."""
        known = sorted(self.tokenizer.get_added_tokens_decoder().items(), key=lambda entry: entry[0])
        tokens = {token.content: token for _, token in known}
        named = {
            name: settings.flagged.get(text, AddedToken(text, -1))
            for name, text in self.special_tokens.items()
        }
        texts = {token.content for token in named.values()}
        for token in settings.added_tokens:
            # Those of the older added_tokens.json leave the file's own as they are.
            if settings.decoder or token.content not in tokens:
                tokens[token.content] = library_token(token, token.special or token.content in texts)
        for token in (*named.values(), *settings.extra_special_tokens):
            found = tokens.get(token.content)
            if found is None and self.id(token.content) is not None:
                tokens[token.content] = library_token(token, token.special)
            elif found is not None and not found.special and token.content in texts:
                flags = {flag: getattr(found, flag) for flag in FLAGS}
                tokens[token.content] = LibraryToken(token.content, **flags | {"special": True})
        kept = () if plain == "all" else settings.special_tokens.keys() & SPECIAL_NAMES
        others = (*(named[name] for name in named if name not in kept), *settings.extra_special_tokens)
        for token in others if plain else ():
            if token.content in tokens:
                tokens[token.content] = library_token(AddedToken(token.content, -1), special=True)
        return {text: token for text, token in tokens.items() if text}


def from_json(path: Path, settings: TokenizerSettings) -> TokenizersBackend:
    """The tokenizer of a `tokenizer.json`, as the class that the settings name changes it.

    Its post-processor adds the special tokens around a text, unless the class says which.
    """
    data = read_bytes(path)
    with library_errors(path, "not a tokenizer"), hide_panics():
        tokenizer = Tokenizer.from_buffer(data)
        rules = class_of(settings, tokenizer)
        apply_class(tokenizer, rules, settings)
        special = settings.with_defaults(rules.special_tokens)
        backend = TokenizersBackend(
            tokenizer, settings, special, path, rules if rules.special_tokens else None
        )
        tokenizer = backend.tokenizer
        if rules.ends is not None:
            tokenizer.post_processor = None
            put_around(backend, *(special.get(name or "") for name in rules.ends))
    check_growth(path, tokenizer)
    with library_errors(path, "its parts do not work together"), hide_panics():
        probe(tokenizer)
    _name_unread(backend, settings)
    return backend


def _name_unread(backend: TokenizersBackend, settings: TokenizerSettings) -> None:
    """Warn of a setting of a text's ends that contradicts the `tokenizer.json`: that file alone says what they are."""
    for name in ("bos_token", "eos_token"):
        wanted = settings.flag(f"add_{name}", None)
        id = backend.id(backend.special_tokens.get(name, ""))
        if wanted is not None and id is not None and wanted != (id in backend.encode("", True)):
            warn(
                f"{settings.path}: add_{name} {str(wanted).lower()} changes nothing, as in transformers: "
                f"the post-processor of tokenizer.json says otherwise"
            )


def put_around(backend: TokenizersBackend, first: str | None, last: str | None) -> None:
    """Add a first and a last token to every text, unless they are None or not in the vocabulary.

    Of a pair each text has the last token.
    """
    first, last = (
        token if token is not None and backend.id(token) is not None else None for token in (first, last)
    )
    if first or last:
        backend.tokenizer.post_processor = processors.TemplateProcessing(
            single=[part for part in (first, "$A", last) if part],
            pair=[part for part in (first, "$A", last, "$B:1", last and f"{last}:1") if part],
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
    special = dict(CLASSES["BertTokenizer"].special_tokens) | settings.special_tokens
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


def check_class(file: str, settings: TokenizerSettings, known: Sequence[str] = ()) -> str | None:
    """The tokenizer class that the settings name, None for none in particular.

    TokenizerError for a class that is not `known`: it has other rules than those for a folder with only this file.
    """
    name, known = settings.tokenizer_class, known or _CLASSES[file]
    if name in (None, "PreTrainedTokenizer", "TokenizersBackend"):
        return None
    if name not in known:
        raise TokenizerError(
            f"{settings.path}: tokenizer_class {name} needs a tokenizer.json; "
            f"{file} alone serves {', '.join(known)}"
        )
    return name
