"""llama.cpp by its Python package, on a GGUF file."""

from __future__ import annotations

from zoo.errors import SourceError
from zoo.inspect.timing import timed_tokens
from zoo_bench.engine import BenchmarkEngine, Job, process_peak


class LlamaCpp(BenchmarkEngine):
    """llama.cpp, in the types of the file, on as many threads as there are cores."""

    def __init__(self, job: Job) -> None:
        from llama_cpp import Llama

        from zoo import runtime

        if job.path.suffix != ".gguf":
            raise SourceError(f"llama.cpp: {job.path} is no GGUF file, and it reads no other")
        threads = runtime.threads()
        self.model = Llama(
            str(job.path), n_ctx=job.longest, n_threads=threads, n_threads_batch=threads, verbose=False
        )
        self.vocab: int = self.model.n_vocab()
        self.context = job.longest

    def write(self, ids: list[int], new: int) -> tuple[float, float]:
        """Seconds to the first token, and of those after it."""
        self.model.reset()  # or it would go on from what it has read of the same prompt
        tokens = self.model.generate(ids, temp=0.0)
        return timed_tokens(next(tokens) for _ in range(new))

    def peak(self) -> int:
        """The most bytes that the process has held."""
        return process_peak()
