"""The metrics: names, units, which way is better, and the limit that bounds each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BenchmarkMetric:
    """One measured number: its name in records, label, unit, and whether more of it is better.

    `work` is what has to be run to measure it: the name that `--only` takes. `bound` is the limit of the machine that a
    rate comes up against: "reading", of memory, or "products", of matrices; see `limits`.
    """

    name: str
    work: str
    label: str
    unit: str
    more: bool = False
    bound: str | None = None


METRICS = (
    BenchmarkMetric("load_seconds", "load", "loading", "s"),
    BenchmarkMetric("start_seconds", "start", "shell to first token", "s"),
    BenchmarkMetric("first_text_seconds", "prefill", "first text, a few tokens", "s"),
    BenchmarkMetric("prefill_rate", "prefill", "prefill", "tokens/s", more=True, bound="products"),
    BenchmarkMetric("first_token_seconds", "prefill", "first token after", "s"),
    BenchmarkMetric("decode_rate", "decode", "decode", "tokens/s", more=True, bound="reading"),
    BenchmarkMetric("batch_rate", "batch", "decode, all rows", "tokens/s", more=True, bound="reading"),
    BenchmarkMetric(
        "context_rate", "context", "decode after a long text", "tokens/s", more=True, bound="reading"
    ),
    BenchmarkMetric("repetitive_rate", "draft", "decode of repetitive text", "tokens/s", more=True),
    BenchmarkMetric("drafted_rate", "draft", "the same with look-up drafts", "tokens/s", more=True),
    BenchmarkMetric("turn_seconds", "turn", "first token of a chat", "s"),
    BenchmarkMetric("next_turn_seconds", "turn", "first token of its next turn", "s"),
    BenchmarkMetric("translation_rate", "translate", "translation", "tokens/s", more=True),
    BenchmarkMetric("translations_rate", "translate", "translation, all rows", "tokens/s", more=True),
    BenchmarkMetric("host_seconds", "host", "host time a step", "s"),
    BenchmarkMetric("primitives", "host", "primitives a step", ""),
    BenchmarkMetric("peak_bytes", "load", "peak memory", "bytes"),
)
WORKLOADS = tuple(dict.fromkeys(one.work for one in METRICS))
ON_REQUEST = ("context", "draft", "turn")  # long works, which are done only on request


def metric_named(name: str) -> BenchmarkMetric:
    """The metric of that name in a record."""
    return next(one for one in METRICS if one.name == name)
