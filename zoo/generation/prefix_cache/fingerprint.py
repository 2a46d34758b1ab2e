"""Fingerprints of models and tokenizers: the same for every load of the same files."""

from __future__ import annotations

import hashlib
import json
import zlib
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from zoo.loading import Loaded
from zoo.tokenizer import Tokenizer

SAMPLED_TOKENS = 512  # of a vocabulary
TEXT = "The year 1984: 中国的首都是北京。\n\tNaïve café — 3.14 € (e.g. x_1 != y²) 🙂"


def model_fingerprint(loaded: Loaded) -> str:
    """A digest of the recipe and of all parameters: names, shapes, dtypes and every number."""
    digest = hashlib.sha256(json.dumps(loaded.recipe.to_json(), sort_keys=True).encode())
    parameters: list[tuple[str, mx.array]] = sorted(tree_flatten(loaded.model.parameters()))
    for path, array in parameters:
        checksum = zlib.crc32(bytes_of(array))  # several times faster than a cryptographic hash
        digest.update(f"{path} {array.shape} {array.dtype} {checksum:08x}\n".encode())
    return digest.hexdigest()


def tokenizer_fingerprint(tokenizer: Tokenizer | None) -> str:
    """A digest of the size, of the special tokens, of tokens throughout the vocabulary and of a text's ids."""
    if tokenizer is None:
        return ""
    step = max(1, tokenizer.vocab_size // SAMPLED_TOKENS)
    known: dict[str, Any] = {
        "size": tokenizer.vocab_size,
        "kind": tokenizer.kind,
        "special": tokenizer.special_tokens,
        "ends": sorted(tokenizer.eos_ids),
        "tokens": [
            tokenizer.decode([id], skip_special_tokens=False) for id in range(0, tokenizer.vocab_size, step)
        ],
        "ids": tokenizer.encode(TEXT),
    }
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


def bytes_of(array: mx.array) -> memoryview:
    """The bytes of an array of any dtype."""
    return memoryview(mx.contiguous(array).reshape(-1).view(mx.uint8))  # type: ignore[arg-type]
