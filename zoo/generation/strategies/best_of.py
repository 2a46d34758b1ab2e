"""The best of several samples: that with the highest mean log-probability of its tokens."""

from __future__ import annotations

from collections import abc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import mlx.core as mx

from zoo import runtime
from zoo.errors import PromptError
from zoo.generation.loop.batch import Sequence, sample, sequence_of
from zoo.generation.loop.batch_decoder import BatchDecoder
from zoo.generation.loop.prompt import Report
from zoo.generation.loop.step import Step, candidate
from zoo.generation.settings import Settings, check_prefill, settings_for
from zoo.loading import Loaded


def stream(
    loaded: Loaded,
    prompt: str | abc.Sequence[int],
    *,
    best_of: int,
    report: Report | None = None,
    **given: Any,
) -> Iterator[Step]:
    """Draw `best_of` texts after `prompt` in the same passes, and yield the best, a `Step` a token.

    The score of a text is the mean of its tokens' log-probabilities under the model itself, in nats. While the texts
    grow steps have no token but the first of them as a `draft`; then come steps without a token whose `candidate` is one
    of the texts, best first, with its `text`, `tokens`, `score` and `finish_reason`. With a `seed` text i is the one
    that a single draw with `seed` + i gives. Without a `temperature` that of `generation_config.json`, else 1.
    PromptError, before anything runs, for a prompt or setting that cannot be: a temperature of 0 draws nothing.
    """
    settings = settings_for(loaded, given)
    if settings.greedy:
        if given.get("temperature") is not None:
            raise PromptError("`best_of` samples its texts: give a `temperature` above 0")
        settings = replace(settings, temperature=1.0)
    check_prefill(loaded, settings)
    sequences = []
    for index in range(best_of):
        seed = None if settings.seed is None else (settings.seed + index) % 2**64
        of_text = replace(settings, seed=seed, logprobs=settings.logprobs or True)
        sequences.append(sequence_of(loaded, prompt, of_text, handle=index))

    def run() -> Iterator[Step]:
        """Drafts while the texts grow, then all as candidates, and the steps of the best. The prompt is read once."""
        texts: list[list[Step]] = [[] for _ in sequences]
        draft = ""
        for sequence, step in draw_texts(loaded, sequences, settings, report):
            if step.error is not None:
                raise step.error
            texts[sequence.handle].append(step)
            if sequence is sequences[0]:
                draft += step.text
                yield Step(None, "", draft=draft)
        ranked = sorted(texts, key=lambda steps: -mean(steps))  # of equals the first drawn
        for steps in ranked:
            yield Step(None, "", candidate=candidate(steps, mean(steps)))
        yield from ranked[0] if settings.logprobs else (replace(step, logprob=None) for step in ranked[0])

    return run()


def draw_texts(
    loaded: Loaded, sequences: abc.Sequence[Sequence], settings: Settings, report: Report | None
) -> Iterator[tuple[Sequence, Step]]:
    """The steps of sequences with the same prompt and settings but for their seeds, as they come."""
    limit = sequences[0].limit
    decoder = BatchDecoder(loaded, [sequences[0].ids], limit, settings, report=report)
    logits = decoder.first()  # (1, V)
    decoder.select([0] * len(sequences))
    logits = mx.broadcast_to(logits, (len(sequences), logits.shape[-1]))
    while sequences:
        sampled = sample(logits, sequences)
        if len(sequences[0].tokens) + 1 < limit:  # the next pass is begun before the tokens are read
            logits = decoder.next(sampled.tokens[:, None])
            if runtime.evaluates_in_background():
                mx.async_eval(logits)
        yield from sampled.steps()
        stay = [row for row, sequence in enumerate(sequences) if not sequence.finished]
        if stay and len(stay) < len(sequences):
            decoder.select(stay)
            logits = logits[mx.array(stay)]
        sequences = [sequences[row] for row in stay]


def mean(steps: abc.Sequence[Step]) -> float:
    """The mean log-probability of the tokens of some steps, in nats."""
    return sum(step.logprob for step in steps if step.logprob is not None) / len(steps)
