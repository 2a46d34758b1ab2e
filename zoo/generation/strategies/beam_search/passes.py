"""The passes over a model that beam searches share: one a token for all hypotheses of all prompts.

Axes: B prompts, H hypotheses (rows), V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import mlx.core as mx

from zoo.generation.sampling import LogitsProcessors
from zoo.generation.sampling.logits import check_numbers, logprobs
from zoo.generation.strategies.batch_decoder import BatchDecoder
from zoo.generation.strategies.beam_search.config import BeamConfig, Hypothesis
from zoo.generation.strategies.beam_search.search import BeamSearch


def run_searches(decoder: BatchDecoder, searches: Sequence[BeamSearch]) -> Iterator[int]:
    """Run the searches to their ends; yield the index of each search after each of its steps.

    The decoder's rows are the prompts, one for each search; those of a search that is done leave.
    """
    active = list(range(len(searches)))
    logits = decoder.first()  # (B, V)
    step = 0
    while True:
        step += 1
        highest = logits.max()  # NaN when any of them is
        each = logprobs(logits)  # (H, V)
        mx.eval(each, highest)
        check_numbers(highest.item(), f"token {step}")
        rows, start, stepping = list[int](), 0, active
        for index in stepping:
            end = start + searches[index].width
            rows += [start + row for row in searches[index].advance(each[start:end])]
            start = end
        active = [index for index in stepping if not searches[index].done]
        if not active:
            yield from stepping
            return
        if rows != list(range(start)):
            decoder.select(rows)
        last = [hypothesis.tokens[-1] for index in active for hypothesis in searches[index].running]
        logits = decoder.next(mx.array(last)[:, None])  # (H, 1) -> (H, V)
        mx.async_eval(logits)
        yield from stepping


def beam_search(
    decoder: BatchDecoder, processors: LogitsProcessors, beams: BeamConfig
) -> Iterator[Hypothesis]:
    """Yield the best running hypothesis of one prompt after each step, and at last the best of those that finished."""
    search = BeamSearch(processors, beams)
    for _ in run_searches(decoder, [search]):
        yield search.found()[0] if search.done else search.best
