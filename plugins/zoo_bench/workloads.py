"""The works, a function each: it runs one engine and gives the metrics that it measured.

Run as a script it is one run of one engine, the process of its own that `benchmark` starts.
"""

from __future__ import annotations

import io
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import mlx.core as mx

from zoo import runtime
from zoo.errors import SourceError
from zoo.inspect.timing import answer, timed_tokens
from zoo_bench.engine import BenchmarkEngine, Job, Lengths
from zoo_bench.engines import ENGINES
from zoo_bench.graph import graph, pretend_gpu
from zoo_bench.limits import NEEDS


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
    BenchmarkMetric("text_1_seconds", "text", "first text, 1 token", "s"),
    BenchmarkMetric("text_8_seconds", "text", "first text, 8 tokens", "s"),
    BenchmarkMetric("text_24_seconds", "text", "first text, 24 tokens", "s"),
    BenchmarkMetric("text_100_seconds", "text", "first text, 100 tokens", "s"),
    BenchmarkMetric("longest_gap_seconds", "text", "its longest gap between tokens", "s"),
    BenchmarkMetric("median_gap_seconds", "text", "its median gap between tokens", "s"),
    BenchmarkMetric("prefill_rate", "prefill", "prefill", "tokens/s", more=True, bound="products"),
    BenchmarkMetric("first_token_seconds", "prefill", "first token after", "s"),
    BenchmarkMetric("decode_rate", "decode", "decode", "tokens/s", more=True, bound="reading"),
    BenchmarkMetric("batch_rate", "batch", "decode, all rows", "tokens/s", more=True, bound="reading"),
    BenchmarkMetric("texts_rate", "texts", "16 texts, reading included", "tokens/s", more=True),
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
    BenchmarkMetric("graph_seconds", "graph", "host time a step, as on a GPU", "s"),
    BenchmarkMetric("operations", "graph", "operations a step, as on a GPU", ""),
    BenchmarkMetric("kernels", "graph", "kernels a step, as on a GPU", ""),
    BenchmarkMetric("peak_bytes", "load", "peak memory", "bytes"),
)
WORKLOADS = tuple(dict.fromkeys(one.work for one in METRICS))
ON_REQUEST = (
    "context",
    "draft",
    "turn",
    "graph",
)  # long works, and one of its own, which are done only on request


def metric_named(name: str) -> BenchmarkMetric:
    """The metric of that name in a record."""
    return next(metric for metric in METRICS if metric.name == name)


WARM = 4  # tokens of each kind that are run before the clock
STEPS = 32  # of which the host's time is the median
TEXT = 42  # tokens of the prompt of the first text
TEXT_TOKENS = (1, 8, 24, 100)  # of the first text, after which its time is taken
TEXTS, TEXTS_PROMPT, TEXTS_NEW = 16, 37, 48  # texts of several at once, tokens of each prompt and each answer
SHORT = 16  # tokens of each prompt of a batch
SOURCE = 24  # tokens of each text that is translated
TURN = 24  # tokens of a chat's next message, and of the answer before it

CODE = '''def add(self, name, value):
    """Add a value under a name."""
    if name in self.values:
        raise KeyError(name)
    self.values[name] = value

def remove(self, name):
    """Remove the value under a name."""
    if name not in self.values:
        raise KeyError(name)
    del self.values[name]

def add(self, name, value):
'''

Metrics = dict[str, float]


@dataclass(frozen=True)
class Workload:
    """An engine that has loaded a folder, and how much it is given."""

    engine: BenchmarkEngine
    lengths: Lengths

    def ids(self, count: int, seed: int = 0) -> list[int]:
        """Random ids, the same in every run."""
        draw = random.Random(seed)
        return [draw.randrange(self.engine.vocab) for _ in range(count)]


def first_text(task: Workload) -> Metrics:
    """The first text after loading: nothing is warm."""
    began = time.perf_counter()
    taken = [time.perf_counter() - began for _ in task.engine.tokens(task.ids(TEXT), TEXT_TOKENS[-1])]
    gaps = [after - before for before, after in pairwise(taken)]
    return {f"text_{count}_seconds": taken[count - 1] for count in TEXT_TOKENS} | {
        "longest_gap_seconds": max(gaps),
        "median_gap_seconds": median(gaps),
    }


def read_and_write(task: Workload) -> Metrics:
    """A prompt is read and a text written after it."""
    tokens, lengths = task.engine.tokens, task.lengths
    prompt = task.ids(lengths.prompt)
    timed_tokens(tokens(prompt, WARM))  # of the same length: buffers, kernels and modules are made for it
    first, rest = timed_tokens(tokens(prompt, lengths.new))
    return {
        "prefill_rate": lengths.prompt / first,
        "first_token_seconds": first,
        "decode_rate": (lengths.new - 1) / rest,
    }


def side_by_side(task: Workload) -> Metrics:
    """Short prompts are read, and texts written after them side by side."""
    lengths = task.lengths
    rows = [task.ids(SHORT, row) for row in range(lengths.rows)]
    return {"batch_rate": lengths.rows * (lengths.new - 1) / task.engine.write_rows(rows, lengths.new)}


def several_texts(task: Workload) -> Metrics:
    """Texts are read and written, `rows` of them side by side."""
    rows = task.lengths.rows
    texts = [task.ids(TEXTS_PROMPT, number) for number in range(TEXTS)]
    task.engine.write_texts(texts[:rows], WARM, rows)
    return {"texts_rate": TEXTS * TEXTS_NEW / task.engine.write_texts(texts, TEXTS_NEW, rows)}


def long_text(task: Workload) -> Metrics:
    """A text is written after a long one."""
    lengths, most = task.lengths, task.engine.context
    if most is not None and lengths.context + lengths.new > most:
        return {}
    seconds = timed_tokens(task.engine.tokens(task.ids(lengths.context), lengths.new))[1]
    return {"context_rate": (lengths.new - 1) / seconds}


def with_drafts(task: Workload) -> Metrics:
    """A text is written after code, which repeats itself, without and with drafts that are looked up in it."""
    plain, drafted, new = task.engine.tokens, task.engine.drafted_tokens, task.lengths.new
    prompt = code(task)
    timed_tokens(drafted(prompt, WARM))
    rates = ((new - 1) / timed_tokens(run(prompt, new))[1] for run in (plain, drafted))
    return dict(zip(("repetitive_rate", "drafted_rate"), rates, strict=True))


def code(task: Workload) -> list[int]:
    """The ids of a text that repeats its names and lines; where there is no tokenizer, each word is a random id of its own."""
    if hasattr(task.engine, "encode"):
        return task.engine.encode(CODE)
    words = re.findall(r"\w+|\S", CODE)
    kinds = sorted(set(words))
    ids = dict(zip(kinds, task.ids(len(kinds)), strict=True))
    return [ids[word] for word in words]


def chat(task: Workload) -> Metrics:
    """A long message is read and answered; then the same, the answer and another message."""
    first, second = task.engine.turns(task.ids(task.lengths.chat), TURN, task.ids(TURN, 1))
    return {"turn_seconds": first, "next_turn_seconds": second}


def translation(task: Workload) -> Metrics:
    """A text is translated, then several side by side."""
    translate, lengths = task.engine.translate, task.lengths
    rows = [task.ids(SOURCE, row) for row in range(lengths.rows)]
    translate(rows[:1], WARM)
    return {
        "translation_rate": lengths.new / translate(rows[:1], lengths.new),
        "translations_rate": lengths.rows * lengths.new / translate(rows, lengths.new),
    }


def host(task: Workload) -> Metrics:
    """The time that Python takes to build one step, and the primitives of its graph; nothing is computed meanwhile."""
    build, states = task.engine.step()
    taken: list[float] = []
    primitives = 0
    for number in range(STEPS):
        ids = mx.array([[5]])
        mx.eval(ids)
        began = time.perf_counter()
        arrays = build(ids)
        taken.append(time.perf_counter() - began)
        if number == 1:  # before the first the prompt was not computed yet
            drawn = io.StringIO()
            mx.export_to_dot(drawn, *arrays)
            primitives = drawn.getvalue().count("shape=rectangle")
        mx.eval(*states(arrays))
    return {"host_seconds": median(taken[1:]), "primitives": primitives}


# By the works they do, one or several at once, with what the engine must have; loading is timed where it is made.
WORKLOAD_FUNCTIONS: dict[tuple[str, ...], tuple[Callable[[Workload], Metrics], str]] = {
    ("text",): (first_text, "tokens"),  # before the others warm anything
    ("prefill", "decode"): (read_and_write, "tokens"),
    ("batch",): (side_by_side, "write_rows"),
    ("texts",): (several_texts, "write_texts"),
    ("context",): (long_text, "tokens"),
    ("draft",): (with_drafts, "drafted_tokens"),
    ("turn",): (chat, "turns"),
    ("translate",): (translation, "translate"),
    ("host",): (host, "step"),
    ("graph",): (lambda task: graph(task.engine), "step"),
}


def started(engine: str, source: Path) -> float | None:
    """Seconds from the start of the engine's own command to the end of its first token; None where it has none."""
    commands = {
        "zoo": ["zoo", "run", str(source), "The", "--max-tokens", "1"],
        "mlx-lm": ["mlx_lm", "generate", "--model", str(source), "--prompt", "The", "--max-tokens", "1"],
    }
    if engine not in commands:
        return None
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", *commands[engine]], capture_output=True, check=False)
    return None if done.returncode else time.perf_counter() - began


def one_run(engine: str, asked: str) -> dict[str, Any]:
    """The metrics of the works that the engine does; SourceError where it does none of them."""
    job = Job.from_json(asked)
    works = set(job.works)
    if works == {"graph"}:
        pretend_gpu()
    metrics: dict[str, Any] = {}
    if "start" in works and (taken := started(engine, job.path)):
        metrics["start_seconds"] = taken
    began = time.perf_counter()
    loaded = ENGINES[engine](job)
    seconds = time.perf_counter() - began - loaded.converting
    task = Workload(loaded, job.lengths)
    for names, (work, needed) in WORKLOAD_FUNCTIONS.items():
        if works & set(names) and hasattr(loaded, needed):
            with runtime.wired_memory():
                metrics |= work(task)
    if "load" in works:
        metrics |= {"load_seconds": seconds, "peak_bytes": loaded.peak()}
    metrics = {
        metric.name: metrics[metric.name]
        for metric in METRICS
        if metric.work in works and metric.name in metrics
    }
    if not metrics:
        raise SourceError(loaded.refused or f"it does nothing of {', '.join(sorted(works))}")
    return metrics | {NEEDS: loaded.needs(job.lengths)}


if __name__ == "__main__":
    answer(one_run)
