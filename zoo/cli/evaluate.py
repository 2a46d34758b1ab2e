"""`zoo evaluate`: how many of a corpus's questions a model answers."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from zoo.cli.source_options import overwrite_option, revision_option


@click.command()
@click.argument("source")
@revision_option
@click.option(
    "--corpus", metavar="NAME", help="Whose questions to ask (default: those of what it was trained on)."
)
@click.option(
    "--all", "everything", is_flag=True, help="Every question, of the atlas not the capitals alone."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the record to this file, too."
)
@overwrite_option
def evaluate(
    source: str,
    revision: str | None,
    corpus: str | None,
    everything: bool,
    as_json: bool,
    out: Path | None,
    overwrite: bool,
) -> None:
    """Ask SOURCE for the capital of every country, in English and Chinese, and count the right answers.

    A translator is asked for sentences of the phrasebook instead.
    """
    from zoo.cli.signals import Interrupts
    from zoo.cli.table import table
    from zoo.files import check_outputs, write_record
    from zoo.loading import load
    from zoo.runtime import versions
    from zoo.training.accuracy import corpus_to_ask, questions_of, scores

    check_outputs((out,), overwrite)
    with Interrupts(lambda text: None), _progress(source) as begin:
        loaded = load(source, revision=revision)
        corpus = corpus or corpus_to_ask(loaded)
        questions = questions_of(loaded.architecture, corpus, everything, loaded.registry)
        found = scores(loaded, questions, begin(len(questions)))
    record = {"scores": [score.as_json() for score in found], "versions": versions()}
    if out is not None:
        write_record(out, record, overwrite, indent=1)
    if as_json:
        click.echo(json.dumps(record, indent=1))
        return
    rows = [
        [
            score.relation,
            score.language,
            f"{score.right}/{score.questions}",
            f"{score.right / score.questions:.1%}",
            f"{score.unseen_right}/{score.unseen}",
        ]
        for score in found
    ]
    click.echo(
        table(rows, ["relation", "language", "right", "share", "of these, sentences never trained on"])
    )


@contextlib.contextmanager
def _progress(source: str) -> Iterator[Callable[[int], Callable[[], None]]]:
    """A bar on the error stream of a terminal: a function from the number of questions to one that counts one more."""
    if not sys.stderr.isatty():
        yield lambda count: lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        loading = bar.add_task(f"loading {source[-30:]}".replace("[", "("), total=None)

        def begin(count: int) -> Callable[[], None]:
            bar.remove_task(loading)
            task = bar.add_task("questions", total=count)
            return lambda: bar.advance(task)

        yield begin
