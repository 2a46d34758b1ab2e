"""transformers on torch."""

from __future__ import annotations

import time
from typing import Any

from zoo.inspect.timing import timed_tokens
from zoo_bench.engine import BenchmarkEngine, Job, process_peak


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
