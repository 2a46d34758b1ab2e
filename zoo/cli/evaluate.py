"""`zoo evaluate`: how many facts of the atlas corpus a model knows."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click


@click.command()
@click.argument("source")
@click.option("--revision", metavar="NAME", help="A hub id's branch, tag or commit.")
@click.option("--all", "everything", is_flag=True, help="Every relation, not the capitals alone.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the record to this file, too."
)
def evaluate(source: str, revision: str | None, everything: bool, as_json: bool, out: Path | None) -> None:
    """Ask SOURCE for the capital of every country, in English and Chinese, and count the right answers.

    A translator is asked for sentences of the phrasebook instead.
    """
    from zoo.cli.table import table
    from zoo.loading import load
    from zoo.training.accuracy import scores
    from zoo.training.pocket import versions
    from zoo_corpora.atlas import RELATIONS

    loaded = load(source, revision=revision)
    found = list(scores(loaded, RELATIONS if everything else ("capital",)))
    text = json.dumps({"scores": [score.as_json() for score in found], "versions": versions()}, indent=1)
    if out is not None:
        part = out.with_name(f"{out.name}.part")
        part.write_text(text + "\n", encoding="utf-8")
        os.replace(part, out)
    if as_json:
        click.echo(text)
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
