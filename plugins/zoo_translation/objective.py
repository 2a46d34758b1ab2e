"""The objective of translation: teacher forcing for encoder-decoders. Axes: B rows, S source tokens, T target tokens."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import mlx.core as mx

from zoo.errors import ZooError
from zoo.tokenizer import Tokenizer
from zoo.training.loop import Batch, TrainingSettings
from zoo.training.loss import IGNORED, cross_entropy
from zoo.training.objective import TrainingObjective

POOL = (
    64  # rows of text, in batches, that are sorted by length together: little padding, still in mixed order
)

Ids = tuple[list[int], list[int]]


def translations(
    pairs: Iterable[tuple[str, str]], tokenizer: Tokenizer, settings: TrainingSettings
) -> Iterator[Batch]:
    """Batches of about `batch` × `length` tokens a side, texts of like length together, longer ones left out."""
    order = random.Random(settings.seed)
    encoded = (ids for ids in encode(pairs, tokenizer) if max(map(len, ids)) <= settings.length)
    while pool := list(islice(encoded, POOL * settings.batch)):
        groups = list(grouped(sorted(pool, key=lambda ids: (len(ids[1]), len(ids[0]))), settings))
        order.shuffle(groups)
        yield from map(batch, groups)


def sentences(
    pairs: Iterable[tuple[str, str]], tokenizer: Tokenizer, settings: TrainingSettings
) -> Iterator[Batch]:
    """Every pair once, in batches, for measuring."""
    yield from map(batch, grouped(sorted(encode(pairs, tokenizer), key=lambda ids: len(ids[1])), settings))


def encode(pairs: Iterable[tuple[str, str]], tokenizer: Tokenizer) -> Iterator[Ids]:
    """The ids of each source and target; the target is closed by the tokenizer's end token."""
    end = tokenizer.id(tokenizer.special_tokens.get("eos_token", ""))
    if end is None:
        raise ZooError("the tokenizer has no end token, which training needs")
    for source, target in pairs:
        ids = tokenizer.encode(target)
        yield tokenizer.encode(source), ids if ids[-1:] == [end] else [*ids, end]


def grouped(texts: Iterable[Ids], settings: TrainingSettings) -> Iterator[list[Ids]]:
    """Groups of consecutive texts, each of at most `batch` × `length` tokens a side, padding included."""
    group: list[Ids] = []
    for ids in texts:
        longest = max(max(map(len, sides)) for sides in [*group, ids])
        if group and longest * (len(group) + 1) > settings.batch * settings.length:
            yield group
            group = []
        group.append(ids)
    if group:
        yield group


def batch(texts: list[Ids]) -> Batch:
    """Sources (B, S), targets (B, T) and the sources' mask (B, S), 1 for a token; padded on the right."""
    width, height = (max(len(ids[side]) for ids in texts) for side in (0, 1))
    sources = mx.array([source + [0] * (width - len(source)) for source, _ in texts])
    targets = mx.array([target + [IGNORED] * (height - len(target)) for _, target in texts])
    mask = mx.array([[1] * len(source) + [0] * (width - len(source)) for source, _ in texts])
    return sources, targets, mask


def translation_loss(model: Any, sources: mx.array, targets: mx.array, mask: mx.array) -> mx.array:
    """Mean over the targets of −log p(target | source, the targets before it), in nats.

    The decoder is given the start token, then the target without its last token (Vaswani et al., 2017, section 3.1).
    """
    start = mx.full((targets.shape[0], 1), model.spec.start, targets.dtype)
    given = mx.concatenate([start, mx.maximum(targets[:, :-1], 0)], axis=1)  # (B, T)
    return cross_entropy(model(sources, given, mask), targets)


TRANSLATION = TrainingObjective(translations, sentences, translation_loss, corpus="phrasebook")
