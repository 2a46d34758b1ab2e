"""Fingerprints of a model and of a tokenizer: the same at each load, other ones for another model."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from zoo.loading import Loaded
from zoo.tokenizer import Tokenizer

SAMPLES = 8  # along each axis of a parameter
TOKENS = 512  # of a vocabulary
TEXT = "The year 1984: 中国的首都是北京。\n\tNaïve café — 3.14 € (e.g. x_1 != y²) 🙂"


def of_model(loaded: Loaded) -> str:
    """A digest of the recipe, of the parameters' names, shapes and dtypes, and of some numbers of each."""
    digest = hashlib.sha256(json.dumps(loaded.recipe.to_json(), sort_keys=True).encode())
    parameters: list[tuple[str, mx.array]] = sorted(tree_flatten(loaded.model.parameters()))
    samples = [_sample(array) for _, array in parameters]
    mx.eval(samples)
    for (path, array), sample in zip(parameters, samples, strict=True):
        digest.update(f"{path} {array.shape} {array.dtype}\n".encode())
        digest.update(bytes_of(sample))
    return digest.hexdigest()


def of_tokenizer(tokenizer: Tokenizer | None) -> str:
    """A digest of the size, of the special tokens, of tokens throughout the vocabulary and of a text's ids."""
    if tokenizer is None:
        return ""
    step = max(1, tokenizer.vocab_size // TOKENS)
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


def _sample(array: mx.array) -> mx.array:
    """At most `SAMPLES` numbers along each axis, as far apart as can be."""
    for axis, size in enumerate(array.shape):
        array = array[(slice(None),) * axis + (slice(None, None, max(1, -(-size // SAMPLES))),)]
    return array
