"""`zoo evaluate`: how many facts of the atlas corpus a model knows."""

from __future__ import annotations

import json

import click


@click.command()
@click.argument("source")
@click.option("--all", "everything", is_flag=True, help="Every relation, not the capitals alone.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def evaluate(source: str, everything: bool, as_json: bool) -> None:
    """Ask SOURCE for the capital of every country, in English and Chinese, and count the right answers."""
    from zoo.cli.table import table
    from zoo.loading import load
    from zoo.training.accuracy import scores
    from zoo.training.atlas import RELATIONS

    loaded = load(source)
    found = list(scores(loaded, RELATIONS if everything else ("capital",)))
    if as_json:
        click.echo(json.dumps([score.as_json() for score in found], indent=1))
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
    click.echo(table(rows, ["relation", "language", "right", "share", "of these, sentences never trained on"]))
