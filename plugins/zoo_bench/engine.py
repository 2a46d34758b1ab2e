"""The engines that a checkpoint is run by, and what each does with the same prompt.

An engine loads a folder; then it reads ids and writes the likeliest token each time, without an end token.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from zoo.errors import SourceError, ZooError
from zoo.inspect.timing import timed_tokens
from zoo_bench.lengths import Lengths

# What `pip install` takes to have an engine, by the module that is then there.
PACKAGES = {
    "mlx": {"mlx": "mlx"},
    "mlx-lm": {"mlx_lm": "mlx-lm"},
    "transformers": {"transformers": "transformers", "torch": "torch"},
    "llama.cpp": {"llama_cpp": "llama-cpp-python"},
    "ctranslate2": {"ctranslate2": "ctranslate2", "transformers": "transformers", "torch": "torch"},
}


def check_installed(name: str) -> None:
    """ZooError for an engine that is not known, SourceError for one that is not installed."""
    if name not in PACKAGES:
        raise ZooError(f"no engine is called {name!r}; there is {', '.join(PACKAGES)}")
    for module, package in PACKAGES[name].items():
        if not find_spec(module):
            raise SourceError(f"{name}: {module} is not installed here: `pip install {package}`")


@dataclass(frozen=True)
class Job:
    """The works that an engine's process does on a folder or file; it travels as JSON on the command line.

    The dtype is the engine's own choice unless given. `architecture` and `unpack` are for the zoo alone.
    """

    folder: str
    works: list[str]
    lengths: Lengths
    dtype: str | None = None
    architecture: str | None = None
    unpack: bool | None = None

    def to_json(self) -> str:
        """The job as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        """The job of a JSON text."""
        values = json.loads(text)
        return cls(**values | {"lengths": Lengths(**values["lengths"])})

    @property
    def path(self) -> Path:
        """The folder or file."""
        return Path(self.folder)

    @property
    def longest(self) -> int:
        """The most tokens of a text in the works."""
        return self.lengths.longest(self.works)


class BenchmarkEngine:
    """An engine that has loaded a folder. A work that it cannot do is None."""

    vocab: int
    context: int | None = None  # the most tokens of a text, where there is a bound
    refused: str | None = None  # why there is no text to write
    converting: float = 0.0  # seconds in which a copy for this engine was made first
    encode: Callable[[str], list[int]] | None = None  # a text's ids, where there is a tokenizer
    # ids, new tokens -> seconds to the first token, and of those after it
    write: Callable[[list[int], int], tuple[float, float]] | None = None
    write_drafted: Callable[[list[int], int], tuple[float, float]] | None = None
    # rows of ids, new tokens -> seconds of the tokens after the first of texts side by side
    write_rows: Callable[[list[list[int]], int], float] | None = None
    # rows of ids, new tokens -> seconds of all tokens of the translations
    translate: Callable[[list[list[int]], int], float] | None = None
    # ids, tokens of the answer, ids -> seconds to the first token of a chat's answer, and of its next one
    turns: Callable[[list[int], int, list[int]], tuple[float, float]] | None = None
    # what builds one step, and what must be evaluated with it
    step: Callable[[], tuple[Callable[[Any], Any], Callable[[Any], list[Any]]]] | None = None

    def needs(self, lengths: Lengths) -> dict[str, float]:
        """By metric, what a token takes of the machine's limit that bounds it, where that is known."""
        return {}

    def peak(self) -> int:
        """The most bytes that MLX has held."""
        import mlx.core as mx

        return mx.get_peak_memory()


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


class Transformers(BenchmarkEngine):
    """transformers on torch."""

    def __init__(self, job: Job) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        kind = getattr(torch, job.dtype or "float32")
        self.model = AutoModelForCausalLM.from_pretrained(job.path, dtype=kind).eval()
        self.vocab: int = self.model.config.vocab_size
        self.context = self.model.config.max_position_embeddings

    def write(self, ids: list[int], new: int) -> tuple[float, float]:
        """Seconds to the first token, and of those after it."""
        return timed_tokens(self._tokens(ids, new))

    def _tokens(self, ids: list[int], new: int) -> Any:
        import torch

        given, past = torch.tensor([ids]), None
        with torch.inference_mode():
            for _ in range(new):
                out = self.model(given, past_key_values=past, use_cache=True, logits_to_keep=1)
                past, given = out.past_key_values, out.logits[:, -1:].argmax(-1)
                yield given.item()

    def write_rows(self, rows: list[list[int]], new: int) -> float:
        """Seconds of the tokens after the first of texts side by side."""
        import torch

        given, past, began = torch.tensor(rows), None, 0.0
        with torch.inference_mode():
            for number in range(new):
                if number == 1:
                    began = time.perf_counter()
                out = self.model(given, past_key_values=past, use_cache=True, logits_to_keep=1)
                past, given = out.past_key_values, out.logits[:, -1:].argmax(-1)
                given.tolist()
        return time.perf_counter() - began

    def peak(self) -> int:
        """The most bytes that the process has held."""
        return process_peak()


def process_peak() -> int:
    """The most bytes that this process has held."""
    import resource
    import sys

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
