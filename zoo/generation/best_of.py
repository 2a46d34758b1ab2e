"""The best of several samples: that with the highest mean log-probability of its tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from zoo.errors import PromptError
from zoo.generation.beam import candidate
from zoo.generation.checkpoint_settings import stop_strings
from zoo.generation.prepared import prepare_all, reader_of
from zoo.generation.prompt import sampling_of
from zoo.generation.reader import Report
from zoo.generation.rows import Row, run_rows
from zoo.generation.sampling import sampler
from zoo.generation.step import Step
from zoo.generation.text import TextStream
from zoo.loading import Loaded


def stream(
    loaded: Loaded,
    prompt: str | Sequence[int],
    *,
    best_of: int,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    seed: int | None = None,
    stop: str | Sequence[str] = (),
    logprobs: bool | int = False,
    prefill_chunk: int | None = None,
    report: Report | None = None,
    **prompting: Any,
) -> Iterator[Step]:
    """Draw `best_of` texts after `prompt` in the same passes, and yield the best, a `Step` a token.

    The score of a text is the mean of its tokens' log-probabilities under the model itself, in nats. While the texts
    grow steps have no token but the first of them as a `draft`; then come steps without a token whose `candidate` is one
    of the texts, best first, with its `text`, `tokens`, `score` and `finish_reason`. With a `seed` text i is the one
    that a single draw with `seed` + i gives. Without a `temperature` that of `generation_config.json`, else 1.
    PromptError, before anything runs, for a prompt or setting that cannot be: a temperature of 0 draws nothing.
    """
    sampling = sampling_of(loaded, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    if not sampling.temperature and temperature is None:
        sampling = sampling_of(loaded, temperature=1.0, top_k=top_k, top_p=top_p, min_p=min_p)
    if not sampling.temperature:
        raise PromptError("`best_of` draws its texts: give a `temperature` above 0")
    [ready] = prepare_all(loaded, [prompt], prefill_chunk=prefill_chunk, **prompting)
    stops = [stop] if isinstance(stop, str) else stop or stop_strings(loaded)
    seeds = [None if seed is None else (seed + index) % 2**64 for index in range(best_of)]
    rows = [
        Row(TextStream(loaded, ready.limit, stops), sampler(sampling, each), ready.constraints)
        for each in seeds
    ]
    reader = reader_of(loaded, [ready], chunk=prefill_chunk, report=report)
    return _best(run_rows(reader, rows, copies=best_of, logprobs=logprobs or True), best_of, bool(logprobs))


def _best(running: Iterator[tuple[int, Step]], count: int, logprobs: bool) -> Iterator[Step]:
    """Drafts while the texts grow, then all as candidates, and the steps of the best."""
    texts: list[list[Step]] = [[] for _ in range(count)]
    draft = ""
    for index, step in running:
        texts[index].append(step)
        if not index:
            draft += step.text
            yield Step(None, "", draft=draft)
    ranked = sorted(texts, key=lambda steps: -mean(steps))  # of equals the first drawn
    for steps in ranked:
        yield Step(None, "", candidate=candidate(steps, mean(steps)))
    yield from ranked[0] if logprobs else (replace(step, logprob=None) for step in ranked[0])


def mean(steps: Sequence[Step]) -> float:
    """The mean log-probability of the tokens of some steps, in nats."""
    return sum(step.logprob for step in steps if step.logprob is not None) / len(steps)
