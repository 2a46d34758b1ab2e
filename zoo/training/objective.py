"""Training objectives: how a corpus becomes batches of token ids for each kind of model, and the loss of a batch.

A batch is `(inputs, targets, …)`; its loss is a mean over the targets that are not ignored. All randomness comes
from the seed, so that a resumed run sees the batches of an uninterrupted one. Axes: B rows, T tokens a row.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo.architecture import Architecture, Objective
from zoo.architecture.setting import checked_settings
from zoo.errors import PluginError, ZooError
from zoo.host.registry import Registry, default_registry
from zoo.loading import Loaded
from zoo.tokenizer import Tokenizer
from zoo.training.answers import ANSWERS
from zoo.training.corpora import TextCorpus
from zoo.training.data_parallel import mean_loss, rows_in
from zoo.training.example_objective import ExampleObjective
from zoo.training.loop import Batch, Loss
from zoo.training.loss import IGNORED, next_token_loss, scored_targets
from zoo.training.record import TrainingSettings

END = "<|endoftext|>"
POOL = 512  # documents that are sorted by length at a time
MIXED = 4096  # rows of running text that are mixed at a time
SORTED = 16  # batches of held-out documents that are sorted by length together
MEASURED = 50  # batches of a person's own held-out text that a measurement takes at most

Batches = Callable[..., Iterator[Batch]]  # of texts, tokenizer, settings, and `names` where it takes them


@dataclass(frozen=True)
class TrainingObjective:
    """An objective: its training batches, its validation batches, and the loss of a batch.

    `corpus`, `steps`, `batch` rows and the peak learning rate `rate` are used unless others are asked for. With
    `running` the batches take text of any length, where `TrainingSettings.packed`; other objectives are given long texts
    in pieces that fit a row. With `sentences` they see the corpus's sentences one by one, where it has them so. `vocab`
    is the size of the tokenizer that is trained when none is given. With `names` each name of the corpus is one token of
    it, and the batches are made with the corpus's `names` and `answers`: a whole answer is masked, by one mask.
    `examples` is the objective of single examples that tuning uses, or a function that returns it, called with the
    `Loaded` and the settings of the objective's record; without one it makes batches of their texts.
    """

    training: Batches
    validation: Batches
    loss: Loss
    corpus: str = "atlas"
    steps: int = TrainingSettings.steps
    batch: int = TrainingSettings.batch
    rate: float = TrainingSettings.rate
    sentences: bool = False
    running: bool = False
    names: bool = False
    vocab: int = 2048
    examples: ExampleObjective | Callable[..., ExampleObjective] | None = None

    # A batch counts by its targets, and its rows can be divided among ranks.
    weight = staticmethod(scored_targets)
    examples_in = staticmethod(rows_in)


def next_tokens(texts: Iterable[str], tokenizer: Tokenizer, settings: TrainingSettings) -> Iterator[Batch]:
    """Teacher-forced batches: inputs (B, T), and targets (B, T), the inputs shifted by one token.

    Packed rows come in a mixed order: neighbours from one text make a batch less varied.
    """
    ids = map(tokenizer.encode, texts)
    stream = rows(ids, settings.length, token(tokenizer, END), settings.packed)
    if settings.packed:
        stream = shuffled(stream, random.Random(settings.seed))
    while waiting := list(islice(stream, settings.batch)):
        pairs = mx.array(waiting)  # (B, T + 1)
        yield pairs[:, :-1], pairs[:, 1:]


def rows(documents: Iterable[list[int]], length: int, end: int, packed: bool = False) -> Iterator[list[int]]:
    """Rows of `length` + 1 ids: whole documents one after the other, each closed by `end`.

    A row starts where a document does, as a prompt will, and the document that overflows it is cut. `packed` cuts
    nothing off: the next row goes on with the last id of the one before, so that each id is a target once.
    """
    row: list[int] = []
    for ids in documents:
        row += [*ids, end]
        if packed:
            whole = (len(row) - 1) // length * length
            yield from (row[start : start + length + 1] for start in range(0, whole, length))
            row = row[whole:]
        elif len(row) > length:
            yield row[: length + 1]
            row = []


def shuffled(rows: Iterator[list[int]], order: random.Random) -> Iterator[list[int]]:
    """The rows in random order, shuffled within pools of `MIXED`."""
    while waiting := list(islice(rows, MIXED)):
        order.shuffle(waiting)
        yield from waiting


def documents(texts: Iterable[str], tokenizer: Tokenizer, settings: TrainingSettings) -> Iterator[Batch]:
    """The same batches with one document a row, every token a target."""
    return padded(texts, tokenizer.encode, batch=64, end=token(tokenizer, END))


def padded(
    texts: Iterable[str], encode: Callable[[str], list[int]], *, batch: int, end: int
) -> Iterator[Batch]:
    """One document a row, padded on the right by targets that are ignored: for measuring, not for training.

    Documents of like length share a batch, so that little of it is padding.
    """
    remaining = ([*encode(text), end] for text in texts)
    while pool := sorted(islice(remaining, SORTED * batch), key=len):
        for start in range(0, len(pool), batch):
            some = pool[start : start + batch]
            width = len(some[-1])
            inputs = mx.array([row[:-1] + [end] * (width - len(row)) for row in some])  # (B, T)
            yield inputs, mx.array([row[1:] + [IGNORED] * (width - len(row)) for row in some])


def split_end(ids: list[int], end: int) -> tuple[list[int], list[int]]:
    """Split a row into its text and the end tokens after it."""
    length = len(ids)
    while length > 1 and ids[length - 1] == end:
        length -= 1
    return ids[:length], ids[length:]


def alike(
    texts: Iterable[str],
    tokenizer: Tokenizer,
    settings: TrainingSettings,
    *,
    closed: bool = True,
    room: int = 0,
) -> Iterator[mx.array]:
    """Batches of documents of similar length, one a row, `closed` by an end token: (B, T).

    For bidirectional attention: there, other documents in a row are noise, and positions mean more when each document
    begins at the first. With packed rows a small model does not learn at all. A batch has at most batch · length tokens.
    With `room`, its rows go on with up to as many end tokens more, mostly few.
    """
    end, most, order = token(tokenizer, END), settings.batch * settings.length, random.Random(settings.seed)
    closing = [end] if closed else []
    rows = ([*tokenizer.encode(text), *closing][: settings.length] for text in texts)
    waiting: list[list[int]] = []
    ended = False
    while not ended:
        arrived = list(islice(rows, POOL))
        ended = len(arrived) < POOL
        waiting = sorted(waiting + arrived, key=len)
        groups = []
        while waiting:
            width = len(waiting[-1]) + int(room * order.random() ** 8)
            count = max(most // width, 1)
            if len(waiting) < count and not ended:  # too few for a batch: they wait for their like
                break
            groups.append([row + [end] * (width - len(row)) for row in waiting[-count:]])
            del waiting[-count:]
        order.shuffle(groups)
        yield from map(mx.array, groups)


def token(tokenizer: Tokenizer, text: str) -> int:
    """The id of a special token, `END` being the tokenizer's own end; ZooError when the tokenizer lacks it."""
    text = tokenizer.special_tokens.get("eos_token", END) if text == END else text
    id = tokenizer.id(text)
    if id is None:
        raise ZooError(f"the tokenizer has no {text}, which training needs")
    return id


def mask_of(tokenizer: Tokenizer) -> int:
    """The id of the mask token."""
    return token(tokenizer, tokenizer.special_tokens.get("mask_token", "[MASK]"))


NEXT_TOKEN = TrainingObjective(next_tokens, documents, next_token_loss, running=True, examples=ANSWERS)


def objective_of(
    architecture: Architecture, name: str | None = None, registry: Registry | None = None
) -> TrainingObjective:
    """The objective `name`, else that of the architecture's task and causality; ZooError when there is none."""
    record = (registry or default_registry()).objective(architecture, name)
    target = record.load()
    if callable(target):
        raise ZooError(f"objective {record.name} trains on the examples of a data file: use `zoo tune`")
    if not isinstance(target, TrainingObjective):
        raise PluginError(_wrong(record, "is", target, "a TrainingObjective"))
    return target


def example_objective(
    loaded: Loaded, name: str | None = None, options: Mapping[str, Any] | None = None
) -> ExampleObjective | None:
    """The objective `name` of single examples, made for a model, else that of the model's task and causality.

    `options` are those that the objective's record declares (`registry.objective(loaded.architecture, name).settings`), by
    name; the others have their defaults. None where the objective has only batches of texts. PluginError when no
    objective has that name, PromptError, which names the option, for one that is unknown or out of bounds.
    """
    record = loaded.registry.objective(loaded.architecture, name)
    given = checked_settings(f"objective {record.name}", record.settings, options or {}, complete=False)
    target = record.load()
    objective = target.examples if isinstance(target, TrainingObjective) else target
    if callable(objective):
        objective = objective(loaded, **given)
    if objective is None or isinstance(objective, ExampleObjective):
        return objective
    raise PluginError(_wrong(record, "gave", objective, "an ExampleObjective"))


def _wrong(record: Objective, verb: str, found: object, wanted: str) -> str:
    return f"objective {record.name}: {record.target} {verb} {type(found).__name__}, not {wanted}"


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
        """The mean loss of the held-out targets in nats; None without any, or when `stop` says so before it is known."""
        return mean_loss(model, self.objective.loss, self.objective.weight, self.validation(documents), stop)


def fitting_texts(
    texts: TextCorpus, tokenizer: Tokenizer, settings: TrainingSettings, objective: TrainingObjective
) -> TextCorpus:
    """The texts in the form that the objective reads; ZooError where a person's own are too short for a row, or too long."""
    user_text = texts.user_text
    if user_text is None:
        return texts
    if user_text.parallel:

        def fits(pair: tuple[str, str]) -> bool:
            source, target = (len(tokenizer.encode(text)) for text in pair)
            return source <= settings.length and target < settings.length  # an end token follows the target

        return user_text.only(fits)
    if not objective.running:
        return user_text.in_pieces(
            lambda text: len(text) <= 16 * settings.length and len(tokenizer.encode(text)) < settings.length
        )
    for what, documents in (("train on", user_text.trained), ("hold out", user_text.held_out)):
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
