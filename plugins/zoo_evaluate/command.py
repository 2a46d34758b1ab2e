"""`zoo evaluate`: models judged on data, on tasks, or on a corpus's questions."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.cli.source_options import (
    FILE,
    FOLDER,
    MODEL_OPTIONS,
    ModelOptions,
    adapter_option,
    complete_source,
    model_options,
    overwrite_option,
    prompt_cache_option,
    sampler_option,
    strategy_option,
)

if TYPE_CHECKING:
    from zoo.loading import Loaded
    from zoo_evaluate.report import Judged

LOADING = tuple(
    option
    for option in MODEL_OPTIONS
    if option not in (adapter_option, strategy_option, sampler_option, prompt_cache_option)
)


@click.command(epilog="Example: zoo evaluate llama --adapter my-adapter --data test.jsonl")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...", shell_complete=complete_source)
@click.option(
    "--data", metavar="PATH", help="Judge on this file, on a folder's test data, or on a hub data set's."
)
@click.option("--tasks", metavar="NAME|FILE,…", help="Judge on tasks of lm-eval: its names, or YAML files.")
@click.option(
    "--corpus", metavar="NAME", help="Corpus whose questions are asked (default: the one it was trained on)."
)
@click.option(
    "--all", "everything", is_flag=True, help="Ask every question; of the atlas not only the capitals."
)
@click.option(
    "--metrics", metavar="NAME,…", help="Measure these on the data (default: those usual for its kind)."
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Judge on the first N items.")
@click.option(
    "--max-tokens",
    type=click.IntRange(1),
    help="Tokens of an answer (default: twice the reference's, and 16).",
)
@click.option(
    "--num-fewshot", type=click.IntRange(0), metavar="N", help="Examples before each question of a task."
)
@click.option("--chat", is_flag=True, help="Lay out a task's questions by the chat template.")
@click.option(
    "--adapter",
    "adapters",
    type=FOLDER,
    multiple=True,
    help="Judge the first SOURCE with this adapter, too; may be given several times.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--out", type=FILE, help="Write the record to this file, too.")
@overwrite_option
@model_options(*LOADING)
def evaluate(
    sources: tuple[str, ...],
    data: str | None,
    tasks: str | None,
    corpus: str | None,
    everything: bool,
    adapters: tuple[Path, ...],
    as_json: bool,
    out: Path | None,
    overwrite: bool,
    options: ModelOptions,
    **given: Any,
) -> None:
    """Judge each SOURCE on the data of a file, on tasks, or on the questions of the corpus that it was trained on.

    Each figure has a 95 % interval; of several models, so has the difference from the first, paired by item.
    """
    from zoo.cli.signals import Interrupts
    from zoo.files.writing import check_outputs, write_record
    from zoo.runtime import versions

    check_outputs((out,), overwrite)
    if data is not None and tasks is not None:
        raise click.UsageError("give either --data or --tasks")
    _check_options(given, data=data, tasks=tasks)
    models: list[tuple[str, str, Path | None]] = [(source, source, None) for source in sources]
    models += [(f"{sources[0]} + {adapter.name}", sources[0], adapter) for adapter in adapters]
    loaders = [
        (name, partial(replace(options, adapter=adapter).load, source)) for name, source, adapter in models
    ]
    with Interrupts(lambda text: None):
        if data is not None:
            record, text = _on_data(sources, loaders, data, options, given)
        elif tasks is not None:
            record, text = _on_tasks(loaders, tasks, given)
        elif len(models) > 1:
            raise click.UsageError("give --data or --tasks to judge several models")
        else:
            record, text = _on_corpus(loaders[0][1], corpus, everything)
    record |= {"versions": versions()}
    if out is not None:
        write_record(out, record, overwrite, indent=1)
    click.echo(json.dumps(record, indent=1, ensure_ascii=False) if as_json else text)


Loaders = Sequence[tuple[str, Callable[[], Any]]]  # the names of models, and what loads them

ONLY = {
    "metrics": ("data",),
    "max_tokens": ("data",),
    "num_fewshot": ("tasks",),
    "chat": ("tasks",),
    "limit": ("data", "tasks"),
}


def _check_options(given: dict[str, Any], **on: str | None) -> None:
    """UsageError for an option that says nothing about what the models are judged on."""
    for name, needs in ONLY.items():
        if given[name] and not any(on[need] for need in needs):
            wanted = " or ".join(f"--{need}" for need in needs)
            raise click.UsageError(f"--{name.replace('_', '-')} needs {wanted}")


def _on_corpus(load: Callable[[], Any], corpus: str | None, everything: bool) -> tuple[dict[str, Any], str]:
    from zoo.cli.progress import Progress
    from zoo_evaluate.corpus import ask, shown

    loaded = load()
    with Progress("asking") as report:
        counts = ask(loaded, corpus, everything, report)
    return {"scores": [score.as_json() for score in counts]}, shown(counts)


def _on_tasks(loaders: Loaders, tasks: str, given: dict[str, Any]) -> tuple[dict[str, Any], str]:
    os.environ.setdefault("TQDM_DISABLE", "1")  # the bars of lm-eval and datasets, once these are imported
    from zoo.cli.progress import Progress
    from zoo_evaluate.tasks import check_lm_eval, run_tasks

    check_lm_eval()
    names = [name.strip() for name in tasks.split(",") if name.strip()]
    judged = []
    for name, load in loaders:
        loaded = load()
        with Progress(f"asking {name}", waits=True) as report:
            settings = {key: given[key] for key in ("num_fewshot", "chat", "limit")}
            judged.append((name, run_tasks(loaded, names, report=report, **settings)))
        del loaded
    return _record({"tasks": names}, judged)


def _on_data(
    sources: Sequence[str], loaders: Loaders, data: str, options: ModelOptions, given: dict[str, Any]
) -> tuple[dict[str, Any], str]:
    from zoo.inspect.perplexity import architecture_of
    from zoo_evaluate.data import examples_to_judge
    from zoo_evaluate.generated import check_sacrebleu
    from zoo_evaluate.judge import SCORES, Judge, check_model, items_of, metrics_of

    items = items_of(examples_to_judge(data), given["limit"])
    metrics = metrics_of(type(items[0]), given["metrics"])
    if set(metrics) & set(SCORES):
        check_sacrebleu()
    if "divergence" in metrics and len(loaders) < 2:
        raise click.UsageError("divergence compares two models: give a second SOURCE")
    for source in sources:
        check_model(architecture_of(source, options.architecture, options.revision), type(items[0]))
    first: Loaded | None = None
    judged: list[tuple[str, Any]] = []
    for name, load in loaders:
        loaded = load()
        with _reports(name) as report:
            judge = Judge(items, metrics, given["max_tokens"], report)
            samples = judge(loaded)
            if "divergence" in metrics and first is not None:
                samples["divergence"] = judge.divergence(first, loaded)
        judged.append((name, samples))
        first = first or (loaded if "divergence" in metrics else None)
        del loaded
    return _record({"data": data, "items": len(items)}, judged)


@contextmanager
def _reports(name: str) -> Iterator[Callable[[str], Any]]:
    """What gives a progress bar for each piece of a model's work."""
    from zoo.cli.progress import Progress

    with ExitStack() as bars:

        def report(what: str) -> Any:
            bars.close()
            return bars.enter_context(Progress(f"{what} by {name}", waits=True))

        yield report


def _record(about: dict[str, Any], judged: Judged) -> tuple[dict[str, Any], str]:
    """The record of figures, and their table."""
    from zoo_evaluate.report import figures, shown

    found = figures(judged)
    return {**about, "figures": [figure.as_json() for figure in found]}, shown(found, len(judged) > 1)
