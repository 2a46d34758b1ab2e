"""Labels and scores of texts, a batch at a time."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from zoo.errors import PromptError
from zoo.frozen import Frozen, frozen
from zoo.loading import Loaded
from zoo.runtime import ranks
from zoo.tokenizer.backend import TypedIds
from zoo_classify.classify import apply_function, batch_logits, encode_texts, head_of
from zoo_classify.labels import function_of, labels_of
from zoo_classify.rerank import batch_scores, encode_pairs
from zoo_serve.requests import ClassificationRequest, ScoreRequest


def encode_rows(loaded: Loaded, request: ClassificationRequest | ScoreRequest) -> list[TypedIds]:
    """The ids of a request's texts or pairs, cut to what the model reads. For any thread.

    PromptError for what the model does not do, and on several ranks, which share no classifier.
    """
    if ranks.size() > 1:
        raise PromptError("labels and scores need a server on one rank")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # texts that are cut
        if isinstance(request, ScoreRequest):
            return encode_pairs(loaded, request.pairs, request.instruction)
        if head_of(loaded).pooling == "each":
            raise PromptError("the model labels tokens, which is not served: `zoo classify` does it")
        return encode_texts(loaded, request.texts)


@frozen()
class RankingCall(Frozen):
    """Yields what batches of rows give: scores, or for a request for labels the best label and all scores of each."""

    batches: tuple[tuple[TypedIds, ...], ...]
    labels: bool
    adapter: str | None = None

    def __call__(self, loaded: Loaded) -> Iterator[Sequence[Any]]:
        for batch in self.batches:
            with loaded.adapters.use(self.adapter):
                values = label_batch(loaded, batch) if self.labels else batch_scores(loaded, batch)
            yield values


def label_batch(loaded: Loaded, rows: Sequence[TypedIds]) -> list[tuple[str, list[float]]]:
    """The best label of each text, and the scores of all labels in the order of the config."""
    names, function = labels_of(loaded.config), function_of(loaded.config)
    scores = [apply_function(function, logits).tolist() for logits in batch_logits(loaded, rows)]
    return [(names[max(range(len(row)), key=row.__getitem__)], row) for row in scores]
