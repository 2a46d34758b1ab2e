"""A corpus as the batches of an objective: those to train on, and those of its held-out text."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import mlx.nn as nn

from zoo.errors import ZooError
from zoo.tokenizer import Tokenizer
from zoo.training.corpora import TextCorpus
from zoo.training.data import IGNORED
from zoo.training.loop import Batch
from zoo.training.objective import TrainingObjective
from zoo.training.record import TrainingSettings

MEASURED = 50  # batches of a person's own held-out text that a measurement takes at most


@dataclass(frozen=True)
class CorpusBatches:
    """The batches that an objective makes of a corpus with a tokenizer."""

    objective: TrainingObjective
    texts: TextCorpus
    tokenizer: Tokenizer
    settings: TrainingSettings

    @cached_property
    def _names(self) -> dict[str, Collection[str]]:
        """The names and answers of the corpus, where the objective's batches take them."""
        if not self.objective.names:
            return {}
        return {"names": self.texts.names(), "answers": self.texts.answers()}

    def training(self) -> Iterator[Batch]:
        """Batches without end, in an order that the seed decides."""
        sentences = self.texts.sentences if self.objective.sentences else None
        documents = (sentences or self.texts.training)(self.settings.seed)
        return self.objective.training(documents, self.tokenizer, self.settings, **self._names)

    def validation(self, documents: int | None = None) -> Iterator[Batch]:
        """The batches of the held-out text, or of its first `documents`; of a person's own at most `MEASURED`."""
        whole = self.settings.packed and self.objective.running
        make = self.objective.training if whole else self.objective.validation
        texts = islice(self.texts.validation(), documents)
        batches = make(texts, self.tokenizer, self.settings, **self._names)
        return islice(batches, MEASURED if self.texts.user_text is not None else None)

    def held_out_loss(
        self, model: nn.Module, documents: int | None = None, stop: Callable[[], bool] = lambda: False
    ) -> float | None:
        """The mean loss of the held-out targets in nats; None when `stop` says so before it is known."""
        total = count = 0.0
        for batch in self.validation(documents):
            if stop():
                return None
            targets = (batch[1] != IGNORED).sum().item()
            total += self.objective.loss(model, *batch).item() * targets
            count += targets
        return total / max(count, 1)


def fitting_texts(
    texts: TextCorpus, tokenizer: Tokenizer, settings: TrainingSettings, objective: TrainingObjective
) -> TextCorpus:
    """The texts as the objective takes them; ZooError where a person's own are too short for a row, or too long."""
    if texts.user_text is None:
        return texts
    if texts.parallel:
        return texts.only(lambda pair: fits_a_row(pair, tokenizer, settings.length))
    if not objective.running:
        return texts.in_pieces(
            lambda text: len(text) <= 16 * settings.length and len(tokenizer.encode(text)) < settings.length
        )
    for what, documents in (("train on", texts.user_text.trained), ("hold out", texts.user_text.held_out)):
        count = 0
        for text in documents:
            count += len(tokenizer.encode(text)) + 1
            if count > settings.length:
                break
        else:
            raise ZooError(
                f"{texts.name}: too short: {count} tokens to {what}, and a row takes {settings.length + 1}: "
                "give more text, or a smaller `length`"
            )
    return texts


def fits_a_row(pair: tuple[str, str], tokenizer: Tokenizer, length: int) -> bool:
    """Whether a source, and its translation with an end token, have at most `length` tokens."""
    source, target = (len(tokenizer.encode(text)) for text in pair)
    return source <= length and target < length
