"""The passes over a model that beam searches share: one a token for all hypotheses of all prompts.

Axes: B prompts, H hypotheses (rows), V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import mlx.core as mx

from zoo.generation.sampling import LogitsProcessors
from zoo.generation.sampling.logits import check_numbers, logprobs
from zoo.generation.strategies.batch_decoder import BatchDecoder
from zoo.generation.strategies.beam_search.scoring import Beams, Hypothesis
from zoo.generation.strategies.beam_search.search import Search


def search_all(decoder: BatchDecoder, searches: Sequence[Search]) -> Iterator[int]:
    """Run the searches to their ends; yield the index of each that took a step, and at last of one that is over.

    The decoder's rows are the prompts, one for each search; those of a search that is over leave the passes.
    """
    going = list(range(len(searches)))
    logits = decoder.first()  # (B, V)
    step = 0
    while True:
        step += 1
        highest = logits.max()  # NaN when any of them is
        each = logprobs(logits)  # (H, V)
        mx.eval(each, highest)
        check_numbers(highest.item(), f"token {step}")
        rows, start, stepped = list[int](), 0, going
        for index in stepped:
            end = start + searches[index].width
            rows += [start + row for row in searches[index].advance(each[start:end])]
            start = end
        going = [index for index in stepped if not searches[index].over]
        if not going:
            yield from stepped
            return
        if rows != list(range(start)):
            decoder.select(rows)
        last = [hypothesis.tokens[-1] for index in going for hypothesis in searches[index].running]
        logits = decoder.next(mx.array(last)[:, None])  # (H, 1) -> (H, V)
        mx.async_eval(logits)
        yield from stepped


def beam_search(decoder: BatchDecoder, processors: LogitsProcessors, beams: Beams) -> Iterator[Hypothesis]:
    """Yield the best running hypothesis of one prompt after each step, and at last the best of those that finished."""
    search = Search(processors, beams)
    for _ in search_all(decoder, [search]):
        yield search.found()[0] if search.over else search.best
