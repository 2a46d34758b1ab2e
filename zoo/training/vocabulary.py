"""The tokenizer of a run: trained on the corpus, or given by the caller, as the files that other tools read.

Source: byte-level BPE as in GPT-2 (Radford et al. 2019, section 2.2).
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.architecture import TokenizerFormat
from zoo.errors import TokenizerError
from zoo.files.writing import write_text
from zoo.host.registry import Registry
from zoo.tokenizer import Tokenizer, load_tokenizer
from zoo.tokenizer.settings import KINDS, SETTINGS, vocabulary_files
from zoo.training.corpora import TextCorpus

if TYPE_CHECKING:
    import tokenizers

# In the order of their ids, from 0. One set for every kind of model: generation ends at the first, padding is
# the second, and masked models use the rest.
SPECIAL_TOKENS = ("<|endoftext|>", "<|pad|>", "[MASK]", "[CLS]", "[SEP]")

NAMES = {*(name for kind in KINDS for name in kind), "target.spm", *SETTINGS}  # of a tokenizer's files
SMALLEST = 256 + len(SPECIAL_TOKENS)  # the byte alphabet and the special tokens, before any merge


# How GPT-2 splits a text before it merges: words with the space before them, numbers, punctuation, spaces.
# Punctuation ends where a name begins, as ".fr" does.
PIECE = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?(?:(?!\g<name>)[^\s\p{L}\p{N}])+|\s+(?!\S)|\s+"


def train_tokenizer(
    texts: Iterable[str], vocab: int = 2048, names: Collection[str] = ()
) -> tokenizers.Tokenizer:
    """A byte-level BPE tokenizer of at most `vocab` tokens, learned from `texts` (a finite iterable).

    It has fewer tokens when the texts offer no more merges. Any text survives encoding and decoding, since
    all 256 bytes are tokens. The same texts give the same tokenizer. Each of `names` is one token wherever it stands
    in a text, without the space before it, and so can come in the place of one mask.

    Raises TokenizerError when `vocab` cannot hold the bytes, the special tokens and the names.
    """
    smallest = SMALLEST + len(set(names))
    if vocab < smallest:
        counted = f", {smallest - SMALLEST} names included" if names else ""
        raise TokenizerError(f"a byte-level vocabulary has at least {smallest} tokens{counted}, not {vocab}")

    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    # Merges never cross the pieces made here. GPT-2's expression splits at spaces, so that an English name
    # gets the same tokens wherever it follows a space; but Chinese has none, and a whole clause would be one
    # piece, whose merges glue a name to its neighbours ("国的首都是") differently in each sentence. So every
    # Han character is a piece of its own: a Chinese name is then the same tokens in any sentence, mostly one
    # a character, and a prompt cut anywhere has the tokens of training. The price is about twice the tokens
    # for the same Chinese text, since common words are no single token.
    splitter = pre_tokenizers.Split(Regex(_pieces(names) if names else r"\p{Han}"), behavior="isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not names)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([splitter, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    # A mask takes the place of a whole token: "is [MASK]." hides " Paris", but "Paris" where names are tokens.
    special = [
        AddedToken(token, special=True, lstrip=token == "[MASK]" and not names) for token in SPECIAL_TOKENS
    ]
    if names:  # they need no merges
        texts = (
            piece for text in texts for piece, _ in splitter.pre_tokenize_str(text) if piece not in names
        )
    trainer = trainers.BpeTrainer(
        vocab_size=vocab - len(set(names)),
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return _with_names(tokenizer, names) if names else tokenizer


def _pieces(names: Collection[str]) -> str:
    """The expression of a text's pieces: a name, the space before one, a Han character, else what GPT-2 takes.

    Of two names that begin alike the longer is tried first; a name that ends in a letter ends its word.
    """
    begun: dict[str, list[str]] = {}  # by their first letter: most places of a text begin none
    for name in sorted(set(names), key=lambda name: (-len(name), name)):
        border = "" if "CJK" in unicodedata.name(name[-1], "") else r"(?![\p{Latin}\p{N}])"
        begun.setdefault(name[0], []).append(re.escape(name[1:]) + border)
    name = "|".join(f"{re.escape(first)}(?:{'|'.join(rest)})" for first, rest in begun.items())
    return rf"(?<name>{name})| (?=\g<name>)|\p{{Han}}|{PIECE}"


def _with_names(tokenizer: tokenizers.Tokenizer, names: Collection[str]) -> tokenizers.Tokenizer:
    """The tokenizer with one more token for each name. Names are matched whole, before any merge."""
    from tokenizers import Tokenizer, pre_tokenizers

    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    written = json.loads(tokenizer.to_str())
    tokens = written["model"]["vocab"]
    for name in sorted(set(names)):
        ((token, _),) = byte_level.pre_tokenize_str(name)
        tokens.setdefault(token, len(tokens))
    written["model"]["ignore_merges"] = True
    return Tokenizer.from_str(json.dumps(written))


def save_tokenizer(tokenizer: tokenizers.Tokenizer, folder: str | os.PathLike[str]) -> None:
    """Writes `tokenizer.json` and `tokenizer_config.json` into `folder`, which is made if it is missing.

    transformers' `AutoTokenizer` loads the folder. No token is added around a text.
    """
    end, padding, mask, classify, separate = SPECIAL_TOKENS
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": end,
        "eos_token": end,
        "pad_token": padding,
        "mask_token": mask,
        "cls_token": classify,
        "sep_token": separate,
        "clean_up_tokenization_spaces": False,  # or old readers would join " ." when they decode
    }
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    write_text(target / "tokenizer.json", tokenizer.to_str(pretty=True))
    write_text(target / "tokenizer_config.json", json.dumps(settings, indent=2) + "\n")


def given_files(given: Path) -> dict[str, bytes]:
    """The files of a tokenizer that a person gives, a folder or a tokenizer.json; TokenizerError for neither."""
    folder = given
    if given.is_file():
        if given.name != "tokenizer.json":
            return {"tokenizer.json": given.read_bytes()}
        folder = given.parent
    has = (lambda name: (folder / name).is_file()) if folder == given else "tokenizer.json".__eq__
    chosen = vocabulary_files(has)
    if not chosen:
        raise TokenizerError(f"{given}: holds no tokenizer; give a folder with one, or a tokenizer.json")
    names = {*chosen, "target.spm", *SETTINGS}
    return {name: (folder / name).read_bytes() for name in sorted(names) if (folder / name).is_file()}


def tokenizer_files(texts: TextCorpus, vocab: int, names: Collection[str] = ()) -> dict[str, bytes]:
    """The files of a tokenizer of `vocab` tokens, `names` among them, trained on a corpus."""
    with tempfile.TemporaryDirectory() as folder:
        save_tokenizer(train_tokenizer(texts.sample(), vocab, names), folder)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def open_tokenizer(files: Mapping[str, bytes], registry: Registry) -> Tokenizer:
    """The tokenizer of these files."""
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            (Path(folder) / Path(name).name).write_bytes(data)
        tokenizer = load_tokenizer(Path(folder), formats=registry.table(TokenizerFormat).listed())
    if tokenizer is None:
        raise TokenizerError("the run holds no tokenizer")
    return tokenizer
