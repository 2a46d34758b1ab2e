"""The tokenizer of a GGUF file: a byte-level one with merges, sentencepiece's with scores, or BERT's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from zoo.checkpoint.gguf.header import Header, shown
from zoo.checkpoint.gguf.pieces import model_proto
from zoo.checkpoint.gguf.vocabulary import CONTROL, KEY, USER, Vocabulary
from zoo.checkpoint.gguf.words import UNNAMED, WORDS, Words
from zoo.tokenizer import Tokenizer
from zoo.tokenizer.huggingface import Backend, TokenizersBackend, bert, naming, put_around


def load_gguf_tokenizer(header: Header, rows: int) -> Tokenizer | None:
    """The tokenizer of a file whose model has `rows` tokens, None where it has no vocabulary.

    TokenizerError names the key whose value cannot be followed.
    """
    told = vocabulary(header)
    if told is None:
        return None
    if len(told.tokens) > rows:
        raise told.error("tokens", f"has {len(told.tokens)} tokens, the model {rows}")
    backend = LOADERS[told.model](told)
    return Tokenizer(
        backend, bos_id=told.id("bos_token_id"), eos_ids=told.ends, chat_template=told.chat_template
    )


def save_gguf_tokenizer(header: Header, folder: Path, generation: Mapping[str, Any]) -> None:
    """Write the same tokenizer as the files of a model folder, `generation` and all ids that end a text among them."""
    from zoo.files import write_json

    told = vocabulary(header)
    if told is None:
        return
    values: dict[str, Any] = {**told.special, "clean_up_tokenization_spaces": False}
    if told.chat_template is not None:
        values["chat_template"] = told.chat_template
    if told.model in ("gpt2", "bert"):
        whole = byte_level(told) if told.model == "gpt2" else word_pieces(told)
        whole.tokenizer.save(str(folder / "tokenizer.json"))
        values["tokenizer_class"] = "PreTrainedTokenizerFast"
    else:
        name, kind = FILES[told.model]
        (folder / name).write_bytes(model_proto(told))
        values |= {"tokenizer_class": kind, **around(told)}
        # Other programs do not ask the model's own file whether a space stands before a text.
        values["add_prefix_space"] = told.value("add_space_prefix", bool, True)
        tokens = {str(token.id): asdict(token) for token in told.settings({}).added_tokens}
        values["added_tokens_decoder"] = {
            id: {key: value for key, value in token.items() if key != "id"} for id, token in tokens.items()
        }
    write_json(folder / "tokenizer_config.json", values)
    if generation or len(told.ends) > 1:
        write_json(folder / "generation_config.json", {**generation, "eos_token_id": told.ends})


def vocabulary(header: Header) -> Vocabulary | None:
    """The file's vocabulary, None where there is none; TokenizerError for a tokenizer that is not implemented."""
    if header.metadata.get(KEY + "model") in (None, "none", "no_vocab"):
        return None
    told = Vocabulary(header)
    _ = told.model
    return told


def byte_level(told: Vocabulary) -> TokenizersBackend:
    """A tokenizer whose tokens are bytes, put together by the merges."""
    from tokenizers import AddedToken as LibraryToken
    from tokenizers import Tokenizer as LibraryTokenizer
    from tokenizers import decoders, models, normalizers, pre_tokenizers

    words = words_of(told)
    merges = [tuple(merge.split(" ")) for merge in told.array("merges", str, None)]
    if any(len(pair) != 2 for pair in merges):
        raise told.error("merges", "must each be two tokens with a space between")
    ids = {text: id for id, text in enumerate(told.tokens)}
    with naming(told.path, "holds no tokenizer"):
        tokenizer = LibraryTokenizer(models.BPE(ids, merges, ignore_merges=words.whole))
        if words.composed:
            tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(_cutters(words))
        tokenizer.decoder = decoders.ByteLevel()
        control, user = (
            [LibraryToken(text, normalized=False) for text in told.of(kind).values()]
            for kind in (CONTROL, USER)
        )
        tokenizer.add_special_tokens(control)
        tokenizer.add_tokens(user)
        backend = TokenizersBackend(tokenizer, told.settings({}), told.special)
        first = told.special.get("bos_token") if told.value("add_bos_token", bool, words.start) else None
        last = told.special.get("eos_token") if told.value("add_eos_token", bool, False) else None
        put_around(backend, first, last)
    return backend


def words_of(told: Vocabulary) -> Words:
    """How text is cut into words; TokenizerError for a way that is unknown, or not told and not certain."""
    name = told.value("pre", str, "default")
    if name == "default":
        name = UNNAMED.get(str(told.architecture))
        if name is None:
            raise told.error("pre", "does not say how text is cut into words; newer converters write it")
    if name not in WORDS:
        raise told.error("pre", f"{shown(name)} is not implemented; known: {', '.join(WORDS)}")
    return WORDS[name]


def _cutters(words: Words) -> list[Any]:
    from tokenizers import Regex, pre_tokenizers

    makers: dict[str, Callable[[Any], Any]] = {
        "split": lambda pattern: pre_tokenizers.Split(Regex(pattern), "isolated"),
        "digits": lambda each: pre_tokenizers.Digits(individual_digits=each),
        "punctuation": pre_tokenizers.Punctuation,
        "bytes": lambda words: pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=words),
    }
    return [makers[name](setting) for name, setting in words.steps]


def word_pieces(told: Vocabulary) -> TokenizersBackend:
    """BERT's tokenizer. A file says nothing of capitals: a vocabulary that has some keeps them."""
    normal = [text for text, kind in zip(told.tokens, told.kinds, strict=True) if kind != CONTROL]
    cased = any(text != text.lower() for text in normal if not text.startswith("["))
    with naming(told.path, "holds no tokenizer"):
        return bert(told.path, told.tokens, told.settings({"do_lower_case": not cased}))


def pieces(told: Vocabulary) -> Backend:
    """A sentencepiece model of the same pieces, scores and kinds, which that library then runs."""
    from zoo.tokenizer.sentencepiece import SentencePieceBackend

    return SentencePieceBackend(told.path, told.settings(around(told)), model_proto(told))


def around(told: Vocabulary) -> dict[str, bool]:
    """What stands around a text; a space after every special token, as llama.cpp puts one, is "legacy"."""
    pairs = told.model == "llama"
    start, end = told.value("add_bos_token", bool, pairs), told.value("add_eos_token", bool, not pairs)
    return {"add_bos_token": start, "add_eos_token": end, "legacy": True}


LOADERS: dict[str, Callable[[Vocabulary], Backend]] = {
    "gpt2": byte_level,
    "llama": pieces,
    "t5": pieces,
    "bert": word_pieces,
}
FILES = {"llama": ("tokenizer.model", "LlamaTokenizer"), "t5": ("spiece.model", "T5Tokenizer")}
