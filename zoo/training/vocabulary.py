"""Training a small byte-level BPE tokenizer, and writing it as the files that other tools read.

Source: byte-level BPE as in GPT-2 (Radford et al. 2019, section 2.2).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.errors import TokenizerError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# In the order of their ids, from 0. One set for every kind of model: generation ends at the first, padding is
# the second, and masked models use the rest.
SPECIAL_TOKENS = ("<|endoftext|>", "<|pad|>", "[MASK]", "[CLS]", "[SEP]")

SMALLEST = 256 + len(SPECIAL_TOKENS)  # the byte alphabet and the special tokens, before any merge


def train_tokenizer(texts: Iterable[str], vocab: int = 2048) -> Tokenizer:
    """A byte-level BPE tokenizer of at most `vocab` tokens, learned from `texts` (a finite iterable).

    It has fewer tokens when the texts offer no more merges. Any text survives encoding and decoding, since
    all 256 bytes are tokens. The same texts give the same tokenizer.

    Raises TokenizerError when `vocab` cannot hold the bytes and the special tokens.
    """
    if vocab < SMALLEST:
        raise TokenizerError(f"a byte-level vocabulary has at least {SMALLEST} tokens, not {vocab}")

    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    # Merges never cross the pieces made here. GPT-2's expression splits at spaces, so that an English name
    # gets the same tokens wherever it follows a space; but Chinese has none, and a whole clause would be one
    # piece, whose merges glue a name to its neighbours ("国的首都是") differently in each sentence. So every
    # Han character is a piece of its own: a Chinese name is then the same tokens in any sentence, mostly one
    # a character, and a prompt cut anywhere has the tokens of training. The price is about twice the tokens
    # for the same Chinese text, since common words are no single token.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\p{Han}"), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    # A mask takes the place of a whole token, the space before it included: "is [MASK]." hides " Paris".
    special = [AddedToken(token, special=True, lstrip=token == "[MASK]") for token in SPECIAL_TOKENS]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: str | os.PathLike[str]) -> None:
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
    _write(target / "tokenizer.json", tokenizer.to_str(pretty=True))
    _write(target / "tokenizer_config.json", json.dumps(settings, indent=2) + "\n")


def _write(path: Path, text: str) -> None:
    """Writes under another name first, so that no reader finds half a file."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
