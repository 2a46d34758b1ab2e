"""Models and the text that they draw themselves: training on it, and its errors. Axes: B rows, T tokens, V vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any

import mlx.core as mx

from zoo.tokenizer import Tokenizer
from zoo.training.corpora import corpus
from zoo.training.loop import Batch, TrainingSettings
from zoo.training.loss import cross_entropy
from zoo.training.objective import END, TrainingObjective, documents, next_tokens, token

OTHER = 1_000_000  # a seed of documents that no training here begins with


def scheduled_sampling(share: float, steps: int) -> TrainingObjective:
    """Teacher forcing in which a growing share of the tokens shown are the model's own (Bengio et al., 2015).

    The share rises from 0 to `share` over so many steps. Targets stay the true ones; held-out text is measured with the
    true tokens shown.
    """

    def batches(texts: Iterable[str], tokenizer: Tokenizer, settings: TrainingSettings) -> Iterator[Batch]:
        for step, (inputs, targets) in enumerate(next_tokens(texts, tokenizer, settings)):
            yield inputs, targets, mx.array(share * min(step / steps, 1.0))

    def loss(model: Any, inputs: mx.array, targets: mx.array, shown: mx.array | None = None) -> mx.array:
        if shown is None:
            return cross_entropy(model(inputs), targets)
        drawn = mx.random.categorical(mx.stop_gradient(model(inputs)))  # (B, T), each for the next place
        own = mx.concatenate([inputs[:, :1], drawn[:, :-1].astype(inputs.dtype)], axis=1)
        mixed = mx.where(mx.random.uniform(shape=inputs.shape) < shown, own, inputs)
        return cross_entropy(model(mixed), targets)

    return TrainingObjective(batches, documents, loss, running=True)


def errors_by_position(
    loaded: Any, *, rows: int, length: int, gram: int, documents: int, free: bool, seed: int
) -> list[tuple[int, int]]:
    """At each position the number of tokens drawn that the corpus never has after the `gram` − 1 before, and of all judged.

    With `free` a row goes on from the end token by what the model draws; else each token is drawn after the true text. A
    token is judged where the corpus has the run before it, so that an error counts once, and not in each run that holds
    it. Nor is one judged after the end of a document within the run, since any document may follow another.
    """
    end = token(loaded.tokenizer, END)
    known = known_runs(loaded.tokenizer, gram, documents)
    if free:
        shown = drawn = free_running(loaded, rows, length, end, seed)
    else:
        shown, drawn = teacher_forced(loaded, rows, length, end, seed)
    found = [(0, 0)] * length
    for true, own in zip(shown, drawn, strict=True):
        for place in range(gram - 1, length + 1):
            run = (*true[place - gram + 1 : place], own[place])
            if end in run[1:-1] or run[:-1] not in known:
                continue
            errors, judged = found[place - 1]
            found[place - 1] = errors + (run not in known), judged + 1
    return found


def free_running(loaded: Any, rows: int, length: int, end: int, seed: int) -> list[list[int]]:
    """Rows of the end token and `length` tokens that the model draws, each after those before it."""
    cache, keys = loaded.model.make_cache(), mx.random.split(mx.random.key(seed), length)
    tokens = [mx.full((rows, 1), end)]
    for key in keys:
        logits = loaded.model(tokens[-1], cache)[:, -1]  # (B, V)
        tokens.append(mx.random.categorical(logits, key=key)[:, None].astype(tokens[0].dtype))
        mx.eval(tokens[-1])
    return mx.concatenate(tokens, axis=1).tolist()


def teacher_forced(
    loaded: Any, rows: int, length: int, end: int, seed: int
) -> tuple[list[list[int]], list[list[int]]]:
    """Rows of the end token and `length` true tokens; and the same with each drawn after the true ones before it."""
    texts = corpus("atlas", "generate").training(OTHER + seed)
    settings = TrainingSettings(batch=rows, length=length)
    ids = next(next_tokens(texts, loaded.tokenizer, settings))[0]  # (B, T)
    shown = mx.concatenate([mx.full((rows, 1), end), ids], axis=1)  # (B, T + 1)
    drawn = mx.random.categorical(loaded.model(shown[:, :-1]), key=mx.random.key(seed))  # (B, T)
    return shown.tolist(), mx.concatenate([shown[:, :1], drawn.astype(shown.dtype)], axis=1).tolist()


@lru_cache(maxsize=1)
def known_runs(tokenizer: Tokenizer, gram: int, count: int) -> frozenset[tuple[int, ...]]:
    """Every run of `gram` tokens, and of one fewer, in `count` documents of the corpus, between end tokens."""
    end = token(tokenizer, END)
    texts = corpus("atlas", "generate")
    runs: set[tuple[int, ...]] = set()
    for text in (*islice(texts.training(0), count), *texts.validation()):
        ids = [end, *tokenizer.encode(text), end]
        for size in (gram - 1, gram):
            runs.update(tuple(ids[start : start + size]) for start in range(len(ids) - size + 1))
    return frozenset(runs)
