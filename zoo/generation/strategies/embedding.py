"""Texts to vectors: hidden states pooled over a text, as sentence-transformers does.

Axes: N texts, B batch, S length, D width.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import mlx.core as mx

from zoo import runtime
from zoo.checkpoint.checkpoint import POOLINGS, open_checkpoint
from zoo.errors import PromptError
from zoo.generation import check_loaded
from zoo.generation.loop.prompt import encode_prompt, in_batches, padded, split_special_ids
from zoo.generation.sampling.logits import check_numbers
from zoo.loading import Loaded
from zoo.tokenizer import Tokenizer

BATCH = 32  # texts a pass


def embed(
    loaded: Loaded, texts: Sequence[str], *, pooling: str | None = None, normalise: bool | None = None
) -> mx.array:
    """The vectors (N, D) of N texts, float32.

    `pooling` ("mean", "first", "last") and `normalise` default to what the folder's sentence-transformers files
    say (`modules.json`, `1_Pooling/config.json`), else to the mean, as it is. A text longer than their
    `max_seq_length` is cut. PromptError for an empty text, ConfigError for a module or mode that is not implemented.

    >>> loaded = zoo.load("bert")
    >>> vectors = zoo.embed(loaded, ["Paris is in France.", "Paris is the capital of France.", "一"], normalise=True)
    >>> vectors.shape  # (N, D)
    (3, 128)
    >>> likeness = vectors @ vectors.T  # (N, N), the cosines
    >>> (likeness[0, 1] > likeness[0, 2]).item()
    True
    """
    check_loaded(loaded, "embed")
    runtime.check_not_forked()
    if isinstance(texts, str | bytes | Mapping) or not isinstance(texts, Iterable):
        raise PromptError(
            f"`texts` must be a list of texts, got {texts!r:.60}; one text: zoo.embed(loaded, [text])"
        )
    texts = list(texts)
    if not texts:
        raise PromptError("there is no text to embed")
    for text in texts:
        if not isinstance(text, str | Sequence) or isinstance(text, bytes):
            raise PromptError(f"`texts` must be a list of texts, got {text!r:.60} among them")
    if normalise is not None and not isinstance(normalise, bool):
        raise PromptError(f"`normalise` must be true or false, got {normalise!r:.60}")
    settings = open_checkpoint(loaded.folder, loaded.registry, loaded.architecture).pooling()
    mode = pooling or settings.mode
    if mode not in POOLINGS:
        raise PromptError(f"`pooling` {mode!r} is not one of {', '.join(POOLINGS)}")
    ids = [encode_text(loaded, text, settings.length) for text in texts]
    vectors: dict[int, mx.array] = {}
    for chosen in in_batches(loaded, list(map(len, ids)), BATCH):
        tokens, mask = padded_texts(loaded, [ids[text] for text in chosen])  # (B, S)
        with runtime.eager():
            states = hidden_states(loaded.model, loaded.architecture.causality, tokens, mask)  # (B, S, D)
        pooled = pool(states, mask, mode)  # (B, D)
        mx.eval(pooled)
        check_numbers(pooled.max().item(), "a text's vector")
        vectors |= zip(chosen, pooled, strict=True)
    found = mx.stack([vectors[text] for text in range(len(ids))])  # (N, D)
    if settings.normalise if normalise is None else normalise:
        found = unit(found)
    return found


def unit(vectors: mx.array) -> mx.array:
    """Vectors scaled to length 1, (N, D) -> (N, D)."""
    return vectors / mx.maximum(mx.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def encode_text(loaded: Loaded, text: str | Sequence[int], limit: int | None) -> list[int]:
    """The ids of a text, at most `limit` of them; the tokens that the tokenizer puts around a text stay.

    Ids are kept as they are. PromptError for an empty text.
    """
    if not text:
        raise PromptError("a text to embed is empty")
    if limit is None or loaded.tokenizer is None or not isinstance(text, str):
        return encode_prompt(loaded, text)
    ids, cut = cut_text(loaded.tokenizer, text, limit)
    if cut:
        warnings.warn(
            f"texts longer than {limit} tokens are cut, as the folder's max_seq_length says", stacklevel=3
        )
    return encode_prompt(loaded, ids)


def cut_text(tokenizer: Tokenizer, text: str, limit: int) -> tuple[list[int], int]:
    """At most `limit` ids of a text, those that the tokenizer puts around it included, and how many were cut, or more."""
    before, own, after = split_special_ids(tokenizer, tokenizer.beginning(text, limit))
    kept = own[: max(limit - len(before) - len(after), 0)]
    return before + kept + after, len(own) - len(kept)


def padded_texts(loaded: Loaded, rows: Sequence[Sequence[int]]) -> tuple[mx.array, mx.array]:
    """Rows of ids (B, S), and their mask (B, S): 1 for a token, 0 for padding, on the side that the model takes it."""
    tokens, mask = padded(rows, left=not loaded.model.encodes)
    return tokens, mx.ones(tokens.shape, mx.int32) if mask is None else mask


def hidden_states(model: Any, causality: str, tokens: mx.array, mask: mx.array) -> mx.array:
    """The hidden states (B, S, D) of padded texts (B, S)."""
    if model.encodes:
        return model.encode(tokens, mask)  # type: ignore[no-any-return]
    prefix = {"prefix": mask.sum(axis=1)} if causality == "prefix" else {}
    return model.backbone(tokens, mask=mask, **prefix)  # type: ignore[no-any-return]


def pool(states: mx.array, mask: mx.array, mode: str) -> mx.array:
    """One vector a text, (B, S, D) -> (B, D), in float32."""
    states, width = states.astype(mx.float32), mask.shape[1]
    if mode == "mean":
        kept = mask[..., None].astype(mx.float32)  # (B, S, 1)
        return (states * kept).sum(axis=1) / kept.sum(axis=1)
    first = mx.argmax(mask, axis=1)
    index = first if mode == "first" else width - 1 - mx.argmax(mask[:, ::-1], axis=1)  # (B,)
    return states[mx.arange(states.shape[0]), index]
