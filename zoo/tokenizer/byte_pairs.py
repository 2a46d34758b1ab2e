"""Byte-pair tokenizers of files older than, or other than, `tokenizer.json`.

`vocab.json` with `merges.txt`, tiktoken's ranks (`qwen.tiktoken`, `tiktoken.model`), and Mistral's `tekken.json`. The
tokenizer class that the settings name says how text is cut into words; a tekken.json says so itself.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from zoo.errors import TokenizerError
from zoo.files.reading import read_object_at
from zoo.tokenizer.classes import CLASS_OF_MODEL_TYPE, CLASSES, TokenizerClass, library_token, part_of
from zoo.tokenizer.detokenizer import byte_values
from zoo.tokenizer.guards import library_errors
from zoo.tokenizer.huggingface import TokenizersBackend, check_class, put_around
from zoo.tokenizer.pretokenizers import BYTES as TO_BYTES
from zoo.tokenizer.pretokenizers import PRE_TOKENIZERS, PreTokenizer, split
from zoo.tokenizer.settings import AddedToken, TokenizerSettings, read_text, read_vocabulary

_GPT2 = "gpt-2"
# The classes that a `vocab.json` with `merges.txt` serves, and the name of each one's pre-tokenizer.
_PRE_TOKENIZERS = {
    "OpenAIGPTTokenizer": "",  # over words, without bytes
    **dict.fromkeys(("GPT2Tokenizer", "CodeGenTokenizer"), _GPT2),
    **dict.fromkeys(("RobertaTokenizer", "BartTokenizer", "LEDTokenizer", "LongformerTokenizer"), _GPT2),
    "GPTNeoXTokenizer": "olmo",
    "CohereTokenizer": "command-r",
    "Qwen2Tokenizer": "qwen2",
    "Qwen3_5Tokenizer": "qwen35",
}
_COMPOSED = ("CohereTokenizer",)  # whose text is composed, unlike that of llama.cpp's pre-tokenizer

# The special tokens of the first Qwen, whose ids follow those of the ranks.
_QWEN_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{n}|>" for n in range(205)))
_KIMI_RESERVED = 256  # ids after the ranks that have tokens, named or not

_TEKKEN_NAMED = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
# Those of a tekken.json older than its own list of them, in the order of their ids.
_TEKKEN_SPECIAL = [
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
]


def from_merges(folder: Path, settings: TokenizerSettings) -> TokenizersBackend:
    """The byte-pair tokenizer of `vocab.json` and `merges.txt`, over bytes or, GPT-1's, over words.

    The class is the one that the settings name, or that of the config's model_type. Without either the vocabulary tells: GPT-1's marks
    the ends of words with `</w>`, GPT-2's their beginnings with `Ġ`.
    """
    merges_path = folder / "merges.txt"
    name = check_class(merges_path.name, settings, tuple(_PRE_TOKENIZERS))
    vocab, merges = read_vocabulary(folder / "vocab.json"), _read_merges(merges_path)
    name = name or CLASS_OF_MODEL_TYPE.get(settings.model_type or "")
    if name not in _PRE_TOKENIZERS:
        by_word = sum(map(_ends_word, vocab)) > sum(token.startswith("Ġ") for token in vocab)
        name = "OpenAIGPTTokenizer" if by_word else "GPT2Tokenizer"
    rules = CLASSES.get(name, CLASSES["RobertaTokenizer"])
    known = vocab.keys() | {token.content for token in settings.added_tokens}
    special = settings.with_defaults(
        {key: text for key, text in rules.special_tokens.items() if text in known}
    )
    with library_errors(merges_path, "does not fit vocab.json"):
        if name == "OpenAIGPTTokenizer":
            unknown = special.get("unk_token")
            tokenizer = Tokenizer(models.BPE(vocab, merges, end_of_word_suffix="</w>", unk_token=unknown))
            tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
            tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
            tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
        else:
            rule = PRE_TOKENIZERS[_PRE_TOKENIZERS[name]]
            spaced = bool(settings.flag("add_prefix_space", False))
            composed = rule.composed or name in _COMPOSED
            tokenizer = _over_bytes(models.BPE(vocab, merges), rule, composed, spaced)
    backend = TokenizersBackend(tokenizer, settings, special, rules=rules)
    _put_ends(backend, settings, rules)
    return backend


def from_ranks(path: Path, settings: TokenizerSettings) -> TokenizersBackend:
    """The tokenizer of tiktoken's ranks: the first Qwen's, whose special tokens are known, or Kimi's, which the settings name."""
    qwen = path.suffix == ".tiktoken"
    classes = ("QWenTokenizer",) if qwen else ("TikTokenTokenizer",)
    if check_class(path.name, settings, classes) is None and not qwen:
        raise TokenizerError(
            f"{settings.path}: tokenizer_class is missing; {path.name} alone serves {classes[0]}"
        )
    ranks = {}
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line:
            token, _, rank = line.partition(" ")
            if not (rank.isascii() and rank.isdigit() and len(rank) < 9):
                raise TokenizerError(f"{path}: line {number} must be a token and its rank, got {line[:60]!r}")
            ranks[_decode(token, f"{path}: line {number}")] = int(rank)
    rule = PRE_TOKENIZERS["qwen2" if qwen else "kimi-k2"]
    first = len(ranks)
    if qwen:
        special = {first + n: text for n, text in enumerate(_QWEN_SPECIAL)}
    else:
        last = max([first + _KIMI_RESERVED - 1, *(token.id for token in settings.added_tokens)])
        special = {id: f"<|reserved_token_{id}|>" for id in range(first, last + 1)}
    named = {"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"} if qwen else {}
    return _ranked(path, ranks, 0, rule, special, settings, named)


def from_tekken(path: Path, settings: TokenizerSettings) -> TokenizersBackend:
    """Mistral's tokenizer: the pattern, the tokens and the special tokens before these are in one `tekken.json`.

    The start token stands before a text, unless the settings say otherwise.
    """
    values = read_object_at(path, TokenizerError)
    config, vocab, listed = (values.get(key) for key in ("config", "vocab", "special_tokens"))
    if not isinstance(config, Mapping) or not isinstance(config.get("pattern"), str):
        raise TokenizerError(f"{path}: config.pattern must be a string")
    texts = _TEKKEN_SPECIAL if listed is None else _tekken_special(listed, path)
    count, size = (config.get(key) for key in ("default_num_special_tokens", "default_vocab_size"))
    count = len(texts) if count is None else count
    if type(count) is not int or not len(texts) <= count <= 2**16:
        raise TokenizerError(
            f"{path}: config.default_num_special_tokens {count!r} must be {len(texts)} or more"
        )
    if not isinstance(vocab, list) or not (size is None or (type(size) is int and size > count)):
        raise TokenizerError(f"{path}: vocab must be a list, and config.default_vocab_size more than {count}")
    special = dict(enumerate([*texts, *(f"<SPECIAL_{id}>" for id in range(len(texts), count))]))
    ranks = {}
    for rank, entry in enumerate(vocab if size is None else vocab[: size - count]):
        if not isinstance(entry, Mapping) or entry.get("rank", rank) != rank:
            raise TokenizerError(f"{path}: vocab[{rank}] must be the token of rank {rank}")
        ranks[_decode(entry.get("token_bytes"), f"{path}: vocab[{rank}].token_bytes")] = rank
    with library_errors(path, "config.pattern cannot be followed"):
        rule = PreTokenizer(split(config["pattern"]) + TO_BYTES)
        part_of("pre_tokenizer", {"type": "Sequence", "pretokenizers": list(rule.steps)})
    named = {name: text for name, text in _TEKKEN_NAMED.items() if text in texts}
    backend = _ranked(path, ranks, count, rule, special, settings, named)
    if settings.flag("add_bos_token", True):
        put_around(backend, backend.special_tokens.get("bos_token"), None)
    return backend


def _ranked(
    path: Path,
    ranks: Mapping[bytes, int],
    first: int,
    rule: PreTokenizer,
    special: Mapping[int, str],
    settings: TokenizerSettings,
    named: Mapping[str, str],
) -> TokenizersBackend:
    """The tokenizer of tokens with their ranks, whose ids are ranks + `first`; `special` has the texts of other ids.

    An added token of the settings replaces the special token of its id.
    """
    if sorted(ranks.values()) != list(range(len(ranks))):
        raise TokenizerError(f"{path}: ranks must be 0 to {len(ranks) - 1}, each once")
    if missing := [value for value in range(256) if bytes([value]) not in ranks]:
        raise TokenizerError(f"{path}: lacks a token for the byte {missing[0]}")
    written = {value: character for character, value in byte_values().items()}

    def text(token: bytes) -> str:
        return "".join(written[value] for value in token)

    merges = []
    for token in sorted(ranks, key=ranks.__getitem__):
        pairs = ((token[:end], token[end:]) for end in range(1, len(token)))
        known = [pair for pair in pairs if pair[0] in ranks and pair[1] in ranks]
        merges += sorted(known, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
    vocab = {text(token): rank + first for token, rank in ranks.items()}
    own = {token.id: token for token in settings.added_tokens}
    added = {id: own.get(id, AddedToken(content, id, normalized=False)) for id, content in special.items()}
    # The library gives an id to a token that its vocabulary lacks, the next one.
    vocab |= {token.content: id for id, token in added.items() if id < first}
    with library_errors(path, "not a tokenizer"):
        model = models.BPE(vocab, [(text(left), text(right)) for left, right in merges], ignore_merges=True)
        tokenizer = _over_bytes(model, rule, rule.composed, False)
        names = set(settings.special_tokens.values())
        tokenizer.add_tokens(
            [library_token(token, token.special or token.content in names) for token in added.values()]
        )
    backend = TokenizersBackend(tokenizer, settings, settings.with_defaults(named), path)
    _put_ends(backend, settings, TokenizerClass())
    return backend


def _over_bytes(model: models.BPE, rule: PreTokenizer, composed: bool, spaced: bool) -> Tokenizer:
    """A tokenizer over bytes; `composed` brings characters to Unicode's composed form, `spaced` puts a space before a text."""
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.NFC() if composed else None
    steps: list[dict[str, Any]] = [*rule.steps[:-1], {**rule.steps[-1], "add_prefix_space": spaced}]
    tokenizer.pre_tokenizer = part_of("pre_tokenizer", {"type": "Sequence", "pretokenizers": steps})
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _put_ends(backend: TokenizersBackend, settings: TokenizerSettings, rules: TokenizerClass) -> None:
    """Put the tokens around a text that the class says, or else those that the settings ask for."""
    ends: Sequence[str | None] = rules.ends or ()
    if not any(ends):
        ends = [name if settings.flag(f"add_{name}", False) else None for name in ("bos_token", "eos_token")]
    put_around(backend, *(backend.special_tokens.get(name or "") for name in ends))


def _tekken_special(listed: object, path: Path) -> list[str]:
    """The texts of a list of special tokens in the order of their ranks, which are 0, 1, …"""
    entries = listed if isinstance(listed, list) else [listed]
    texts = {entry.get("rank"): entry.get("token_str") for entry in entries if isinstance(entry, Mapping)}
    ordered = [texts.get(rank) for rank in range(len(entries))]
    if not all(isinstance(text, str) and text for text in ordered):
        raise TokenizerError(
            f"{path}: special_tokens must be a list of a rank, from 0 on, and a token_str each"
        )
    return [str(text) for text in ordered]


def _decode(text: object, where: str) -> bytes:
    """The bytes of a token written in base64; TokenizerError for anything else."""
    try:
        token = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except (binascii.Error, ValueError):
        token = b""
    if not token:
        raise TokenizerError(f"{where}: {text!r} is not a token in base64")
    return token


def _ends_word(token: str) -> bool:
    return token.endswith("</w>")


def _read_merges(path: Path) -> list[tuple[str, str]]:
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
