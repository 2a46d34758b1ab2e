"""The time of a pass by kind of block: the blocks are evaluated one after the other.

Run as a script it is a process of its own, since it changes the classes of the blocks.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from zoo import runtime
from zoo.errors import SourceError
from zoo.inspect.timing import answer
from zoo_bench.engine import Job
from zoo_bench.engines import ZooDecoder, ZooTranslator, zoo
from zoo_bench.workloads import SOURCE

REST = "rest"  # what no block takes: the last choice of tokens, and Python between the blocks
STEPS = 8  # tokens that are written


class BlockClock:
    """Seconds by the name of a block's class, without the blocks in it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._inside = [0.0]  # of each block that runs, the seconds of those in it

    def watch(self, kind: type) -> None:
        """Time every call of a class's modules."""
        run: Callable[..., Any] = kind.__call__  # type: ignore[operator]

        def timed(module: nn.Module, *given: Any, **named: Any) -> Any:
            evaluate((given, named))
            began = time.perf_counter()
            self._inside.append(0.0)
            result = run(module, *given, **named)
            evaluate(result)
            taken = time.perf_counter() - began
            self.seconds[kind.__name__] += taken - self._inside.pop()
            self._inside[-1] += taken
            return result

        kind.__call__ = timed  # type: ignore[method-assign]

    def take(self) -> dict[str, float]:
        """The seconds since the last time, and those of `REST`; the clock begins anew."""
        taken, self.seconds = dict(self.seconds), defaultdict(float)
        self._inside = [0.0]
        return taken


def evaluate(tree: Any) -> None:
    """Evaluate the arrays in lists, tuples and mappings."""
    mx.eval([leaf for _, leaf in tree_flatten(tree) if isinstance(leaf, mx.array)])


def profile(asked: str) -> dict[str, dict[str, float]]:
    """Seconds by the kind of block: of "prefill", the whole prompt, and of "decode", one token after it.

    Of a translator "prefill" reads the sources of several texts, and "decode" is one token of each translation.
    """
    job = Job.from_json(asked)
    engine, lengths = zoo(job), job.lengths
    if not isinstance(engine, ZooDecoder | ZooTranslator):
        raise SourceError(engine.refused or "it has no profile")
    model, draw, translates = engine.loaded.model, random.Random(0), isinstance(engine, ZooTranslator)
    rows, length = (lengths.rows, SOURCE) if translates else (1, lengths.prompt)
    clock = BlockClock()
    for kind in {type(module) for module in model.modules()} - {type(model)}:
        if "__call__" in dir(kind):
            clock.watch(kind)

    def read(ids: mx.array, cache: list[Any]) -> mx.array:
        if translates:
            return model.decode(ids[:, :1], model.encode(ids), cache)
        return model.head(model.backbone(ids, cache)[:, -1:])

    def go_on(ids: mx.array, cache: list[Any]) -> mx.array:
        return model.decode(ids, None, cache) if translates else read(ids, cache)

    def passes(run: Callable[..., Any], count: int, cache: list[Any], times: int) -> dict[str, float]:
        """The mean seconds of one pass over `count` tokens of each row."""
        clock.take()
        began = time.perf_counter()
        for _ in range(times):
            ids = mx.array([[draw.randrange(engine.vocab) for _ in range(count)] for _ in range(rows)])
            with runtime.eager():
                mx.eval(mx.argmax(run(ids, cache), axis=-1))
        whole = time.perf_counter() - began
        by_kind = clock.take()
        by_kind[REST] = whole - sum(by_kind.values())
        return {name: seconds / times for name, seconds in sorted(by_kind.items(), key=lambda item: -item[1])}

    passes(read, length, model.make_cache(), 1)
    cache = model.make_cache()
    return {"prefill": passes(read, length, cache, 1), "decode": passes(go_on, 1, cache, STEPS)}


if __name__ == "__main__":
    answer(profile)
