"""Vectors of texts, a batch at a time."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from zoo.checkpoint.checkpoint import Pooling, open_checkpoint
from zoo.errors import PromptError
from zoo.frozen import Frozen, frozen
from zoo.generation.strategies.embedding import embed, encode_text, prompt_of, unit
from zoo.loading import Loaded
from zoo_serve.prepare import check_length, smaller, too_long
from zoo_serve.requests import EmbeddingRequest, RequestError


def encoded(loaded: Loaded, request: EmbeddingRequest) -> list[list[int]]:
    """The ids of a request's texts as `zoo.embed` reads and cuts them, after the folder's default prompt. For any thread.

    PromptError for a text that cannot be encoded, and for a folder whose prompt is not pooled: ids do not tell it apart.
    RequestError for a text beyond the context that is not cut.
    """
    settings = open_checkpoint(loaded.folder, loaded.registry, loaded.architecture).pooling()
    context = smaller(loaded.recipe.context, request.context)
    if request.truncate:
        settings = replace(settings, length=smaller(settings.length, context))
    prompt = prompt_of(settings)
    if prompt and not settings.include_prompt:
        raise PromptError(
            "the folder's Pooling has include_prompt false, which is not served with a default prompt"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # texts that are cut
        several = len(request.texts) > 1
        return [
            _encode_prompt(loaded, text, settings, prompt, context, f"input[{at}]" if several else "input")
            for at, text in enumerate(request.texts)
        ]


def _encode_prompt(
    loaded: Loaded,
    text: str | tuple[int, ...],
    settings: Pooling,
    prompt: str,
    context: int | None,
    where: str,
) -> list[int]:
    if not text:
        raise RequestError(400, f"`{where}` is empty", param="input")
    if settings.length is None:
        check_length(loaded, text, context, "input")
    ids = encode_text(loaded, text, settings, prompt)
    if context is not None and len(ids) > context:
        raise too_long(len(ids), context, "input")
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
                vectors = vectors_of(loaded, batch, self.dimensions)
            yield vectors


def vectors_of(loaded: Loaded, texts: Sequence[Any], dimensions: int | None) -> list[list[float]]:
    """The vectors of texts, given as ids; their first `dimensions` numbers, scaled to length 1, where that is given."""
    try:
        vectors = embed(loaded, texts, dimensions=dimensions)  # (N, D)
    except PromptError as error:
        if dimensions is None:
            raise
        raise RequestError(400, str(error), param="dimensions") from error
    return (vectors if dimensions is None else unit(vectors)).tolist()  # type: ignore[no-any-return]
