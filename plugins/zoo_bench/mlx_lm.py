"""MLX's own reading of files, and mlx-lm."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from zoo.inspect.timing import timed_tokens
from zoo_bench.engine import BenchmarkEngine, Job


class Mlx(BenchmarkEngine):
    """MLX's own reading of the same files, and nothing else: what no loading can be faster than."""

    def __init__(self, job: Job) -> None:
        import mlx.core as mx
        import numpy

        from zoo.checkpoint.checkpoint import open_checkpoint
        from zoo.host.registry import default_registry

        files = open_checkpoint(job.path, default_registry()).weight_files()
        # Of other files the bytes: MLX's own reader of GGUF crashes at a damaged one.
        self.arrays = [
            mx.load(str(file))
            if file.suffix == ".safetensors"
            else mx.array(numpy.fromfile(file, numpy.uint8))
            for file in files
        ]
        mx.eval(self.arrays)


class MlxLm(BenchmarkEngine):
    """mlx-lm, on the BLAS that the zoo uses."""

    def __init__(self, job: Job) -> None:
        import mlx.core as mx
        from mlx_lm.utils import load_model

        self.model, config = load_model(job.path)
        if job.dtype:
            self.model.set_dtype(getattr(mx, job.dtype))
            mx.eval(self.model.parameters())
        self.vocab: int = config["vocab_size"]
        self.context = config.get("max_position_embeddings", config.get("n_positions"))

    def write(self, ids: list[int], new: int) -> tuple[float, float]:
        """Seconds to the first token, and of those after it."""
        import mlx.core as mx
        from mlx_lm.generate import generate_step

        return timed_tokens(generate_step(mx.array(ids), self.model, max_tokens=new))

    def write_rows(self, rows: list[list[int]], new: int) -> float:
        """Seconds of the tokens after the first of texts side by side."""
        from mlx_lm.generate import BatchGenerator

        engine = BatchGenerator(self.model, max_tokens=new, completion_batch_size=len(rows))
        engine.insert(rows)
        found: list[Any] = []
        while len(found) < len(rows):
            found = engine.next()[-1]
        began = time.perf_counter()
        while engine.next()[-1]:
            pass
        return time.perf_counter() - began

    def step(self) -> tuple[Callable[[Any], Any], Callable[[Any], list[Any]]]:
        """The function that builds one step as mlx-lm's own generation does, and the one for the arrays to evaluate."""
        import mlx.core as mx
        from mlx_lm.models.cache import make_prompt_cache

        cache = make_prompt_cache(self.model)
        self.model(mx.array([[1, 2, 3, 4]]), cache=cache)

        def build(ids: Any) -> Any:
            logits = self.model(ids, cache=cache)[:, -1, :]
            scores = logits - mx.logsumexp(logits, keepdims=True)
            return mx.argmax(scores, axis=-1), scores

        return build, lambda found: [*found, [one.state for one in cache]]
