"""Measurements of the texts that checkpoints write: their diversity, and right answers to questions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from zoo.generation import generate
from zoo.loading import Loaded
from zoo_corpora.accuracy import completes, is_right, questions_of
from zoo_lab.experiments.model_metrics import held_out

TOKENS = 40  # of a text at most
STRIDE = 7919  # a prime: questions of one seed are spread over all of them


def distinct(loaded: Any, texts: int, seed: int, **settings: Any) -> float:
    """The share of distinct ones among all pairs of neighbouring tokens, in percent (Li et al., 2016, distinct-2).

    Each text goes on from the first two tokens of a held-out one.
    """
    pairs: list[tuple[int, int]] = []
    for number, text in enumerate(held_out()[:texts]):
        prompt = loaded.tokenizer.encode(text)[:2]
        found = generate(loaded, prompt, max_tokens=TOKENS, seed=seed * texts + number, **settings)
        pairs += pairwise([*prompt, *found.tokens])
    return 100 * len(set(pairs)) / max(len(pairs), 1)


def right(loaded: Loaded, count: int, seed: int, **settings: Any) -> float:
    """The percentage of right answers to `count` questions about capitals, sampled with `settings`."""
    asked = chosen(questions_of(loaded.architecture, registry=loaded.registry), count, seed)
    return (
        100
        * sum(
            completes(loaded, question, seed=seed * count + number, **settings)
            for number, question in enumerate(asked)
        )
        / len(asked)
    )


def answered(
    loaded: Loaded, count: int, seed: int, report: Callable[[int, int], None] = lambda done, total: None
) -> float:
    """The percentage of right answers to `count` of all questions, as `zoo evaluate` counts them."""
    asked = chosen(questions_of(loaded.architecture, every=True, registry=loaded.registry), count, seed)
    found = 0
    for number, question in enumerate(asked):
        found += is_right(loaded, question)
        report(number + 1, len(asked))
    return 100 * found / len(asked)


def chosen(questions: list[Any], count: int, seed: int) -> list[Any]:
    """So many questions, others for each seed as long as there are."""
    first = seed * count
    return [questions[(first + number) * STRIDE % len(questions)] for number in range(count)]
