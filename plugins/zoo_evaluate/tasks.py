"""Tasks of lm-eval, run by its own evaluator on a loaded model."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy

from zoo.checkpoint.open import Report
from zoo.errors import SourceError, ZooError
from zoo.loading import Loaded
from zoo_evaluate.sample import Better, Sample, mean, proportion

SLOW = {"bleu", "chrf", "ter"}  # metrics of a whole corpus that take long; lm-eval resamples them as seldom
FEW = 100


def check_lm_eval() -> None:
    """SourceError, with the command that installs it, where lm-eval is missing."""
    missing = [name for name in ("lm_eval", "datasets") if find_spec(name) is None]
    if missing:
        raise SourceError(
            f"tasks need {' and '.join(missing)}, which the extra `eval` installs: pip install 'mlx-zoo[eval]'"
        )


def run_tasks(
    loaded: Loaded,
    names: Sequence[str],
    *,
    num_fewshot: int | None = None,
    chat: bool = False,
    limit: int | None = None,
    report: Report | None = None,
) -> dict[str, Sample]:
    """The metrics of tasks, "task metric", each with its items.

    `names` are lm-eval's names of tasks and groups, or YAML files. ZooError for a name that lm-eval does not know and for a
    task that cannot be read or run.
    """
    check_lm_eval()
    files = [name for name in names if Path(name).suffix in (".yaml", ".yml")]
    if missing := next((name for name in files if not Path(name).is_file()), None):
        raise ZooError(f"{missing}: no such file")
    from lm_eval import evaluate
    from lm_eval.tasks import TaskManager

    from zoo_evaluate.harness import ZooLM

    model = ZooLM(loaded, report)
    try:
        tasks_found = TaskManager(include_defaults=len(files) < len(names)).load(list(names))
        tasks: dict[str, Any] = tasks_found["tasks"]
        _seed(tasks.values(), num_fewshot)
        judged: Any = evaluate(
            model,
            tasks_found,
            limit=limit,
            bootstrap_iters=0,
            apply_chat_template=chat,
            fewshot_as_multiturn=True,
        )
    except ZooError:
        raise
    except Exception as error:  # lm-eval and datasets raise errors of every kind
        what = " ".join(str(error).split()) or type(error).__name__
        raise ZooError(f"{', '.join(names)}: lm-eval: {what}") from error
    return {
        metric: sample
        for name, items in judged["samples"].items()
        for metric, sample in _samples(name, tasks[name], items).items()
    }


def _seed(tasks: Iterable[Any], num_fewshot: int | None) -> None:
    """Set the seeds, and the number of examples before each question, as lm-eval's own command does.

    A task that says 0 stays without examples.
    """
    from lm_eval.defaults import DEFAULT_OTHER_SEED, DEFAULT_RANDOM_SEED

    random.seed(DEFAULT_RANDOM_SEED)
    numpy.random.seed(DEFAULT_OTHER_SEED)
    for task in tasks:
        examples = task.get_config("num_fewshot")
        if examples is None or (num_fewshot is not None and examples != 0):
            task.set_config(key="num_fewshot", value=num_fewshot or 0)
        task.set_fewshot_seed(seed=DEFAULT_OTHER_SEED)


def _samples(name: str, task: Any, items: Sequence[dict[str, Any]]) -> dict[str, Sample]:
    """The metrics of one task, by what it and the filter of its answers are called."""
    several = len({item["filter"] for item in items}) > 1
    values: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for item in sorted(items, key=lambda item: item["doc_id"]):
        for metric in item["metrics"]:
            values[metric, item["filter"]].append(item[metric])
    samples = {}
    for (metric, filtered), scores in values.items():
        aggregate = task.aggregation()[metric]
        better: Better = "higher" if task.higher_is_better()[metric] else "lower"
        label = f"{name} {metric}{f' ({filtered})' if several else ''}"
        if getattr(aggregate, "__name__", "") == "mean":
            numbers = [float(value) for value in scores]
            samples[label] = proportion(numbers) if better == "higher" else mean(better, numbers)
        elif metric != "bypass":
            samples[label] = _aggregate(better, scores, aggregate, FEW if metric in SLOW else None)
    return samples


def _aggregate(better: Better, values: Sequence[Any], aggregate: Any, resamples: int | None) -> Sample:
    """A metric that is no mean: lm-eval's own function of the values of the items that are counted."""

    def estimate(times: Any) -> float:
        return float(
            aggregate([value for value, n in zip(values, times.tolist(), strict=True) for _ in range(n)])
        )

    more = {} if resamples is None else {"resamples": resamples}
    return Sample(better, len(values), estimate, **more)
