"""Metrics in Prometheus' format, by its own library."""

from __future__ import annotations

import re

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from zoo.generation.loop.step import PromptRead

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_NUMBERS = re.compile(r"\d+")


class Metrics:
    """The counters, gauges and histograms of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self._requests = Counter(
            "zoo_requests", "Requests by endpoint and status.", ("endpoint", "status"), registry=registry
        )
        self._refused = Counter("zoo_refused", "Requests refused, by reason.", ("reason",), registry=registry)
        self._cancelled = Counter("zoo_cancelled", "Requests whose client went away.", registry=registry)
        self._prompt = Counter("zoo_prompt_tokens", "Tokens of prompts.", ("model",), registry=registry)
        self._cached = Counter(
            "zoo_cached_tokens",
            "Tokens of prompts that the prompt cache held.",
            ("model",),
            registry=registry,
        )
        self._generated = Counter("zoo_generated_tokens", "Tokens generated.", ("model",), registry=registry)
        self._lookups = Counter(
            "zoo_prompt_cache_lookups",
            "Prompts by why the cache held no more of them.",
            ("model", "reason"),
            registry=registry,
        )
        self._first = Histogram(
            "zoo_time_to_first_token_seconds",
            "From a request's arrival.",
            ("model",),
            buckets=SECONDS,
            registry=registry,
        )
        self._next = Histogram(
            "zoo_time_between_tokens_seconds",
            "Of one answer.",
            ("model",),
            buckets=SECONDS,
            registry=registry,
        )
        self._gauges = {
            name: Gauge(f"zoo_{name}", about, registry=registry)
            for name, about in (
                ("waiting", "Sequences that wait."),
                ("prefilling", "Sequences whose prompts are being read."),
                ("running", "Sequences that run, a row each."),
                ("memory_bytes", "Bytes that MLX holds."),
                ("models_loaded", "Models in memory."),
            )
        }

    def prompt_read(self, model: str, read: PromptRead) -> None:
        """A prompt was read."""
        self._prompt.labels(model).inc(read.tokens)
        self._cached.labels(model).inc(read.cached_tokens)
        if read.miss_reason is not None:
            self._lookups.labels(model, _NUMBERS.sub("N", read.miss_reason)).inc()

    def first_token(self, model: str, seconds: float) -> None:
        """An answer's first token came so long after its request."""
        self._first.labels(model).observe(seconds)
        self._generated.labels(model).inc()

    def next_token(self, model: str, seconds: float) -> None:
        """Another token came so long after the one before."""
        self._next.labels(model).observe(seconds)
        self._generated.labels(model).inc()

    def finished(self, endpoint: str, status: int) -> None:
        """A request was answered."""
        self._requests.labels(endpoint, str(status)).inc()

    def refused(self, reason: str) -> None:
        """A request was refused."""
        self._refused.labels(reason).inc()

    def cancelled(self) -> None:
        """A client went away."""
        self._cancelled.inc()

    def text(self, now: dict[str, int]) -> bytes:
        """The metrics as text. `now` has the values of the gauges."""
        for name, value in now.items():
            self._gauges[name].set(value)
        return generate_latest(self.registry)
