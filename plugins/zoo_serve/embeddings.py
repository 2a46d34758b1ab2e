"""Vectors of texts, a batch at a time."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx

from zoo.checkpoint.checkpoint import open_checkpoint
from zoo.frozen import Frozen, frozen
from zoo.generation.strategies.embedding import embed, encode_text
from zoo.loading import Loaded
from zoo_serve.prepare import MOST_TOKENS, check_length, too_long
from zoo_serve.requests import RequestError


def encoded(loaded: Loaded, texts: Sequence[str | tuple[int, ...]]) -> list[list[int]]:
    """The ids of texts as `zoo.embed` reads and cuts them. For any thread.

    PromptError for one that cannot be encoded, RequestError for one beyond the context that is not cut.
    """
    limit = open_checkpoint(loaded.folder, loaded.registry, loaded.architecture).pooling().length
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # texts that are cut
        return [_encoded(loaded, text, limit) for text in texts]


def _encoded(loaded: Loaded, text: str | tuple[int, ...], limit: int | None) -> list[int]:
    most = loaded.recipe.context or MOST_TOKENS
    if limit is None:
        check_length(loaded, text, most, "input")
    ids = encode_text(loaded, text, limit)
    if len(ids) > most:
        raise too_long(str(len(ids)), most, "input")
    return ids


@frozen()
class EmbeddingCall(Frozen):
    """Yields the vectors of batches of texts, given as ids: their first `dimensions` numbers where that is given."""

    batches: tuple[tuple[Sequence[int], ...], ...]
    dimensions: int | None = None
    adapter: str | None = None

    def __call__(self, loaded: Loaded) -> Iterator[list[list[float]]]:
        for batch in self.batches:
            with loaded.adapters.use(self.adapter):
                found = vectors_of(loaded, batch, self.dimensions)
            yield found


def vectors_of(loaded: Loaded, texts: Sequence[Any], dimensions: int | None) -> list[list[float]]:
    """The vectors of texts, given as ids; their first `dimensions` numbers, scaled to length 1, where that is given."""
    found = embed(loaded, texts)  # (N, D)
    if dimensions is not None:
        if dimensions > found.shape[1]:
            raise RequestError(400, f"`dimensions` must be at most {found.shape[1]}", param="dimensions")
        found = found[:, :dimensions]
        found = found / mx.maximum(mx.linalg.norm(found, axis=-1, keepdims=True), 1e-12)
    return found.tolist()  # type: ignore[no-any-return]
