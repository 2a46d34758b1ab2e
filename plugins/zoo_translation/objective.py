"""The objective of translation: teacher forcing for encoder-decoders. Axes: B rows, S source tokens, T target tokens."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import mlx.core as mx

from zoo.errors import ZooError
from zoo.generation.loop.prompt import encode_prompt, first_token, languages_of, split_special_ids
from zoo.generation.settings import generation_config_of
from zoo.loading import Loaded
from zoo.tokenizer import Tokenizer
from zoo.training.example_objective import ExampleObjective
from zoo.training.examples import TranslationPair
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
    end = end_token(tokenizer)
    for source, target in pairs:
        ids = tokenizer.encode(target)
        yield tokenizer.encode(source), ids if ids[-1:] == [end] else [*ids, end]


def end_token(tokenizer: Tokenizer) -> int:
    """The id that closes a target."""
    end = tokenizer.id(tokenizer.special_tokens.get("eos_token", ""))
    if end is None:
        raise ZooError("the tokenizer has no end token, which training needs")
    return end


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


@dataclass(frozen=True)
class TranslationRow:
    """The ids of a source and its target; `cut` tokens of them were left out."""

    ids: Ids
    cut: int

    @property
    def length(self) -> int:
        """The tokens of the longer side."""
        return max(map(len, self.ids))


def of_pairs(
    loaded: Loaded, source_language: str | None = None, target_language: str | None = None
) -> ExampleObjective:
    """The objective of single translations; PromptError for a language that the model lacks, or needs.

    A target begins with the token of its language, where the model has one.
    """
    languages = languages_of(loaded, source_language, target_language)
    first = first_token(loaded, target_language)
    if first is None:  # a checkpoint for one language may name its token
        first = generation_config_of(loaded).get("forced_bos_token_id")
    start = [first] if isinstance(first, int) else []

    def encode(pair: TranslationPair, loaded: Loaded, length: int) -> list[TranslationRow]:
        tokenizer = loaded.tokenizer
        if tokenizer is None:
            raise ZooError(f"{loaded.folder}: has no tokenizer")
        before, _, after = split_special_ids(tokenizer, pair.target) if languages is None else (start, [], [])
        end = [] if after else [end_token(tokenizer)]
        source = encode_prompt(loaded, pair.source, True, source_language, target_language)
        target = [*before, *tokenizer.encode_target(pair.target), *after, *end]
        kept = cut(source, length), cut(target, length)
        return [TranslationRow(kept, len(source) + len(target) - sum(map(len, kept)))]

    return ExampleObjective(
        (TranslationPair,),
        encode,
        lambda rows, loaded, order: batch([row.ids for row in rows]),
        translation_loss,
    )


def cut(ids: list[int], length: int) -> list[int]:
    """At most `length` ids, the last of which, an end token mostly, stays."""
    return ids if len(ids) <= length else [*ids[: length - 1], ids[-1]]


TRANSLATION = TrainingObjective(
    translations, sentences, translation_loss, corpus="phrasebook", examples=of_pairs
)
