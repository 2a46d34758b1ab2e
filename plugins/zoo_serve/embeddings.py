"""Vectors of texts, a batch at a time."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from zoo.checkpoint.checkpoint import open_checkpoint
from zoo.generation.loop.prompt import encode_prompt
from zoo.generation.strategies.embedding import BATCH as BATCH
from zoo.generation.strategies.embedding import embed
from zoo.loading import Loaded
from zoo_serve.requests import RequestError

Text = str | tuple[int, ...]


def token_counts(loaded: Loaded, texts: Sequence[Text]) -> list[int]:
    """The number of tokens of each text, as `zoo.embed` cuts it; PromptError for one that cannot be encoded. For any thread."""
    limit = open_checkpoint(loaded.folder, loaded.registry, loaded.architecture).pooling().length
    counts = [len(encode_prompt(loaded, _plain(text))) for text in texts]
    return [
        count if limit is None or not isinstance(text, str) else min(count, limit)
        for text, count in zip(texts, counts, strict=True)
    ]


def embedded(loaded: Loaded, texts: Sequence[Text], dimensions: int | None) -> list[list[float]]:
    """The vectors of some texts; their first `dimensions` numbers, scaled to length 1, where that is given."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # texts that are cut
        found = embed(loaded, [_plain(text) for text in texts])  # (N, D)
    if dimensions is not None:
        if dimensions > found.shape[1]:
            raise RequestError(400, f"`dimensions` must be at most {found.shape[1]}", param="dimensions")
        found = found[:, :dimensions]
        found = found / mx.maximum(mx.linalg.norm(found, axis=-1, keepdims=True), 1e-12)
    return found.tolist()  # type: ignore[no-any-return]


def _plain(text: Text) -> Any:
    return text if isinstance(text, str) else list(text)
