"""Log-probabilities of given tokens, of many sequences at once.

Axes: B rows of a batch, S source length, T length, N targets of a row, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import mlx.core as mx

from zoo.checkpoint.open import Report
from zoo.generation.loop.prompt import in_batches, padded
from zoo.generation.sampling.logits import check_numbers, token_logprobs
from zoo.inspect.perplexity import hidden_chunks
from zoo.loading import Loaded
from zoo.training.loss import IGNORED

HEAD = 512  # targets whose logits are computed at once


@dataclass(frozen=True)
class TargetRow:
    """A sequence that a model reads, `inputs` (T), and the token after each that is scored, `targets` (T), or IGNORED.

    `source` (S) is what an encoder-decoder translates.
    """

    inputs: Sequence[int]
    targets: Sequence[int]
    source: Sequence[int] = ()

    @cached_property
    def places(self) -> list[int]:
        """The positions with a target, (N)."""
        return [place for place, target in enumerate(self.targets) if target != IGNORED]


@dataclass(frozen=True)
class Likelihood:
    """Of a row's targets the log-probabilities in nats, (N), and whether each is the likeliest token, (N)."""

    logprobs: list[float]
    likeliest: list[bool]

    @property
    def total(self) -> float:
        """The log-probability of all targets."""
        return sum(self.logprobs)

    @property
    def per_token(self) -> float:
        """The mean log-probability of a target."""
        return self.total / len(self.logprobs)


def likelihoods(loaded: Loaded, rows: Sequence[TargetRow], report: Report | None = None) -> list[Likelihood]:
    """The likelihood of each row. `report` is called with the rows done and those in all.

    A prefix language model sees the tokens up to the first target both ways. ZooError where the model gives no numbers.
    """
    of_rows = [Likelihood([], []) for _ in rows]
    done = 0
    for index, targets, logits in target_logits(loaded, rows):
        scores = token_logprobs(logits, targets).values  # (N,)
        likeliest = logits.argmax(axis=-1) == targets  # (N,)
        mx.eval(scores, likeliest)
        check_numbers(scores.min().item(), "the targets")
        of_rows[index].logprobs.extend(scores.tolist())
        of_rows[index].likeliest.extend(likeliest.tolist())
        if len(of_rows[index].logprobs) == len(rows[index].places):
            done += 1
            if report is not None:
                report(done, len(rows))
    return of_rows


def target_logits(loaded: Loaded, rows: Sequence[TargetRow]) -> Iterator[tuple[int, mx.array, mx.array]]:
    """The targets (N,) of the rows, in parts, with the logits (N, V) that predict them, and the index of the row.

    The longest rows come first; those that are read alike, such as the choices of one letter after a question, are read
    once. Padding is on the right, where no token before it sees it.
    """
    alike: dict[tuple[Any, ...], list[int]] = {}
    for index, row in enumerate(rows):
        if row.places:
            alike.setdefault((*row.source, None, *row.inputs, None, row.places[0]), []).append(index)
    groups = list(alike.values())
    for batch in in_batches(loaded, [len(rows[group[0]].inputs) for group in groups]):
        some = [rows[groups[number][0]] for number in batch]
        inputs, _ = padded([row.inputs for row in some])  # (B, T)
        if loaded.model.translates:
            states = _decode_rows(loaded, some, inputs)  # (B, T, V)
        else:
            states = _hidden(loaded, some, inputs)  # (B, T, D)
        for number, own in zip(batch, states, strict=True):
            for index, start in product(groups[number], range(0, len(inputs[0]), HEAD)):
                places = rows[index].places[start : start + HEAD]
                if places:
                    part = own[mx.array(places)]  # (N, D) or (N, V)
                    logits = part if loaded.model.translates else loaded.model.head(part[None])[0]
                    targets = mx.array([rows[index].targets[place] for place in places])
                    yield index, targets, logits.astype(mx.float32)


def _hidden(loaded: Loaded, rows: Sequence[TargetRow], inputs: mx.array) -> mx.array:
    """The hidden states (B, T, D) of a decoder."""
    if loaded.architecture.causality == "prefix":
        prefixes = mx.array([row.places[0] + 1 for row in rows])
        return loaded.model.backbone(inputs, prefix=prefixes)
    return mx.concatenate([hidden for _, hidden in hidden_chunks(loaded.model, inputs)], axis=1)


def _decode_rows(loaded: Loaded, rows: Sequence[TargetRow], inputs: mx.array) -> mx.array:
    """The logits (B, T, V) of an encoder-decoder."""
    sources, mask = padded([row.source for row in rows])  # (B, S)
    return loaded.model.decode(inputs, loaded.model.encode(sources, mask), memory_mask=mask)
