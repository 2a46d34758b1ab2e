"""What each kind of model is trained to do: how a corpus becomes batches, and the loss of one.

A batch is `(inputs, targets, …)`; its loss is a mean over the targets that are not ignored. All randomness comes
from the seed, so that a resumed run sees the batches of an uninterrupted one. Axes: B rows, T tokens a row.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import mlx.core as mx

from zoo.architecture import Architecture
from zoo.errors import PluginError, ZooError
from zoo.registry import registry
from zoo.tokenizer import Tokenizer
from zoo.training.data import IGNORED, batches, padded
from zoo.training.loop import Batch, Loss, Settings
from zoo.training.loss import cross_entropy, next_token_loss, token_losses
from zoo.training.translation import sentences, translation_loss, translations

END = "<|endoftext|>"
MASKED = 0.15  # share of the tokens that BERT is asked for
LEAST_NOISE = 1e-3  # the smallest share of masks in a diffusion: its inverse weighs the loss
POOL = 512  # documents that are sorted by length at a time

Batches = Callable[[Iterable[Any], Tokenizer, Settings], Iterator[Batch]]


@dataclass(frozen=True)
class Method:
    """How one kind of model is trained: the batches to learn from, those to measure by, and the loss of one.

    `corpus` is what it is trained on, for `steps` steps, unless another is asked for: where few of a batch's tokens
    tell something, as those behind masks do, it takes more of them. `running` says that its batches take text of any
    length whole, where `Settings.packed`; another method is given long texts in pieces that fit a row.
    """

    training: Batches
    validation: Batches
    loss: Loss
    corpus: str = "atlas"
    steps: int = Settings.steps
    running: bool = False


def next_tokens(texts: Iterable[str], words: Tokenizer, settings: Settings) -> Iterator[Batch]:
    """Inputs and targets, one token further on."""
    return batches(
        texts,
        words.encode,
        batch=settings.batch,
        length=settings.length,
        end=token(words, END),
        shuffle=random.Random(settings.seed) if settings.packed else None,
    )


def documents(texts: Iterable[str], words: Tokenizer, settings: Settings) -> Iterator[Batch]:
    """The same with one document a row, of which every token is asked for."""
    return padded(texts, words.encode, batch=64, end=token(words, END))


def answers(texts: Iterable[str], words: Tokenizer, settings: Settings) -> Iterator[Batch]:
    """Next tokens after a prompt of random length, 1 … T/2, that sees itself both ways: the third array, (B,).

    A target within the prompt is one that the inputs show, so none is asked for before the prompt's end.
    """
    for (inputs, targets), key in zip(next_tokens(texts, words, settings), keys(settings.seed), strict=False):
        prefix = mx.random.randint(1, inputs.shape[1] // 2 + 1, inputs.shape[:1], key=key)  # (B,)
        yield inputs, _after(prefix, targets), prefix


def second_halves(texts: Iterable[str], words: Tokenizer, settings: Settings) -> Iterator[Batch]:
    """One document a row, its first half the prompt."""
    for inputs, targets in documents(texts, words, settings):
        prefix = mx.maximum((targets != IGNORED).sum(axis=1) // 2, 1)  # (B,)
        yield inputs, _after(prefix, targets), prefix


def _after(prefix: mx.array, targets: mx.array) -> mx.array:
    """The targets (B, T) from the first one that a prompt of `prefix` (B,) tokens does not hold, others ignored."""
    return mx.where(mx.arange(targets.shape[1]) >= prefix[:, None] - 1, targets, IGNORED)


def answer_loss(model: Any, inputs: mx.array, targets: mx.array, prefix: mx.array) -> mx.array:
    """The loss of a prefix LM's answer."""
    return cross_entropy(model(inputs, prefix=prefix), targets)


def hidden_words(texts: Iterable[str], words: Tokenizer, settings: Settings) -> Iterator[Batch]:
    """BERT's: 15% of the tokens are asked for, of which 80% are masked, 10% are others, 10% as they were.

    Devlin et al., 2018, section 3.1 and appendix A.1.
    """
    end, mask = token(words, END), mask_of(words)
    for ids, key in zip(alike(texts, words, settings), keys(settings.seed), strict=False):
        asked_key, kind_key, other_key = mx.random.split(key, 3)
        asked = (mx.random.uniform(shape=ids.shape, key=asked_key) < MASKED) & (ids != end)  # (B, T)
        kind = mx.random.uniform(shape=ids.shape, key=kind_key)
        others = mx.random.randint(0, words.vocab_size, ids.shape, key=other_key)
        changed = mx.where(kind < 0.8, mask, mx.where(kind < 0.9, others, ids))
        yield mx.where(asked, changed, ids), mx.where(asked, ids, IGNORED)


def noised(texts: Iterable[str], words: Tokenizer, settings: Settings) -> Iterator[Batch]:
    """A diffusion's: each row has its share t of masks, uniform in (0, 1], and weights, 1/t at a mask, (B, T).

    Nie et al., 2025, equation 3. The shares of a batch are spread evenly, which makes its loss less noisy (Kingma
    et al., 2021, appendix I.1).
    """
    mask = mask_of(words)
    for ids, key in zip(alike(texts, words, settings), keys(settings.seed), strict=False):
        share_key, mask_key = mx.random.split(key)
        shares = (mx.random.uniform(key=share_key) + mx.arange(ids.shape[0]) / ids.shape[0]) % 1
        shares = (LEAST_NOISE + (1 - LEAST_NOISE) * shares)[:, None]  # (B, 1)
        masked = mx.random.uniform(shape=ids.shape, key=mask_key) < shares  # (B, T)
        yield mx.where(masked, mask, ids), ids, mx.where(masked, 1 / shares, 0.0)


def weighted_loss(model: Any, inputs: mx.array, targets: mx.array, weights: mx.array) -> mx.array:
    """Mean over all targets of weight · −log p(target): a bound of −log p(text) a token (Nie et al., 2025)."""
    return (token_losses(model(inputs), targets) * weights).sum() / targets.size


def alike(texts: Iterable[str], words: Tokenizer, settings: Settings) -> Iterator[mx.array]:
    """One document a row, closed by an end token, with documents of about its length: (B, T).

    Where everything is seen at once, other documents in a row are noise, and positions tell more when each begins
    at the first: packed rows keep a small model from learning at all. A batch has at most batch · length tokens.
    """
    end, room, order = token(words, END), settings.batch * settings.length, random.Random(settings.seed)
    rows = ([*words.encode(text), end][: settings.length] for text in texts)
    waiting: list[list[int]] = []
    ended = False
    while not ended:
        more = list(islice(rows, POOL))
        ended = len(more) < POOL
        waiting = sorted(waiting + more, key=len)
        groups = []
        while waiting:
            width = len(waiting[-1])
            count = max(room // width, 1)
            if len(waiting) < count and not ended:  # too few for a batch: they wait for their like
                break
            groups.append([row + [end] * (width - len(row)) for row in waiting[-count:]])
            del waiting[-count:]
        order.shuffle(groups)
        yield from map(mx.array, groups)


def keys(seed: int) -> Iterator[mx.array]:
    """Random keys without end, the same for the same seed."""
    key = mx.random.key(seed)
    while True:
        key, own = mx.random.split(key)
        yield own


def token(words: Tokenizer, text: str) -> int:
    """The id of a special token, `END` being the tokenizer's own end; ZooError when the tokenizer lacks it."""
    text = words.special_tokens.get("eos_token", END) if text == END else text
    id = words.id(text)
    if id is None:
        raise ZooError(f"the tokenizer has no {text}, which training needs")
    return id


def mask_of(words: Tokenizer) -> int:
    """The id that stands for a hidden token."""
    return token(words, words.special_tokens.get("mask_token", "[MASK]"))


NEXT_TOKEN = Method(next_tokens, documents, next_token_loss, running=True)
ANSWER = Method(answers, second_halves, answer_loss, running=True)
HIDDEN_WORDS = Method(hidden_words, hidden_words, next_token_loss, steps=8000)
DIFFUSION = Method(noised, noised, weighted_loss, steps=8000)
TRANSLATION = Method(translations, sentences, translation_loss, corpus="phrasebook")


def objective_of(architecture: Architecture, name: str | None = None) -> Method:
    """The objective `name`, else that of the architecture's task and causality; ZooError when there is none."""
    record = registry().objective(architecture, name)
    method = record.method()
    if not isinstance(method, Method):
        raise PluginError(
            f"objective {record.name}: {record.target} is {type(method).__name__}, not a Method"
        )
    return method
