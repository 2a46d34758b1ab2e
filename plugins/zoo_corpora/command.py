"""`zoo evaluate`: how many of a corpus's questions a model answers."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import click

from zoo.cli.source_options import FILE, overwrite_option, revision_option, yes_option


@click.command()
@click.argument("source")
@revision_option
@yes_option
@click.option(
    "--corpus", metavar="NAME", help="Corpus whose questions are asked (default: the one it was trained on)."
)
@click.option(
    "--all", "everything", is_flag=True, help="Ask every question; of the atlas not only the capitals."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--out", type=FILE, help="Write the record to this file, too.")
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
    from zoo.cli.progress import Progress
    from zoo.cli.signals import Interrupts
    from zoo.cli.terminal import table
    from zoo.files.writing import check_outputs, write_record
    from zoo.loading import load
    from zoo.runtime import versions
    from zoo_corpora.accuracy import corpus_to_ask, questions_of, scores

    check_outputs((out,), overwrite)
    with Interrupts(lambda text: None):
        with Progress("loading", waits=True) as loading:
            loaded = load(source, revision=revision, report=loading)
        corpus = corpus or corpus_to_ask(loaded)
        questions = questions_of(loaded.architecture, corpus, everything, loaded.registry)
        done = count(1)
        with Progress("asking") as asking:
            found = scores(loaded, questions, lambda: asking(next(done), len(questions)))
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
