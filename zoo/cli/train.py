"""`zoo train`: a model from nothing, on a corpus that the zoo itself makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("architecture")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="The folder to write."
)
@click.option(
    "--config", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="A config.json to follow."
)
@click.option(
    "--tokenizer", type=click.Path(path_type=Path, exists=True), help="A folder whose tokenizer to use."
)
@click.option("--corpus", help="What to train on: atlas, or phrasebook for a translator.")
@click.option("--steps", type=int, help="Steps of one batch each.")
@click.option("--batch", type=int, help="Rows a batch.")
@click.option("--length", type=int, help="Tokens a row.")
@click.option("--rate", type=float, help="Peak learning rate.")
@click.option("--seed", type=int, help="Seed of weights and data.")
@click.option("--resume", is_flag=True, help="Go on from the checkpoint in OUT/run.")
def train(
    architecture: str, out: Path, resume: bool, config: Path | None, tokenizer: Path | None, **given: Any
) -> None:
    """Train ARCHITECTURE from nothing and write a checkpoint folder that `zoo run` and transformers load.

    Without --config its pocket preset's numbers are used.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from zoo.checkpoint.source import read_json
    from zoo.training.pocket import settings_of, train_folder

    settings = settings_of(architecture, {key: value for key, value in given.items() if value is not None})
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f} · {task.fields[rate]:,.0f} tokens/s"),
        TimeRemainingColumn(),
    )
    progress = Progress(*columns, console=Console(stderr=True))
    task = progress.add_task(architecture, total=settings.steps, loss=float("nan"), rate=0.0)

    def report(step: int, loss: float, rate: float) -> None:
        progress.start()  # at the first step: what is refused before it is one line, without an empty bar
        progress.update(task, completed=step, loss=loss, rate=rate)

    try:
        record = train_folder(
            architecture,
            out,
            settings,
            numbers=read_json(config.resolve()) if config else None,
            tokenizer=tokenizer,
            resume=resume,
            report=report,
        )
    finally:
        progress.stop()
    click.echo(
        f"{out}: {record.parameters:,} parameters, {record.tokens:,} tokens in {record.seconds:.0f} s, "
        f"loss {record.losses[-1][1]}, validation {record.validation[-1][1]}"
    )
