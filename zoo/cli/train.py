"""`zoo train`: a model from nothing, on a corpus that the zoo itself makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("architecture")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="The folder to write.")
@click.option("--config", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="A config.json to follow.")
@click.option("--tokenizer", type=click.Path(path_type=Path, exists=True), help="A folder whose tokenizer to use.")
@click.option("--corpus", default="atlas", show_default=True, help="What to train on.")
@click.option("--steps", type=int, help="Steps of one batch each.")
@click.option("--batch", type=int, help="Rows a batch.")
@click.option("--length", type=int, help="Tokens a row.")
@click.option("--rate", type=float, help="Peak learning rate.")
@click.option("--seed", type=int, help="Seed of weights and data.")
@click.option("--resume", is_flag=True, help="Go on from the checkpoint in OUT/run.")
def train(architecture: str, out: Path, resume: bool, config: Path | None, tokenizer: Path | None, **given: Any) -> None:
    """Train ARCHITECTURE from nothing and write a checkpoint folder that `zoo run` and transformers load.

    Without --config its pocket preset's numbers are used.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from zoo.checkpoint.source import read_json
    from zoo.training.pocket import settings_of, train_folder

    settings = settings_of({key: value for key, value in given.items() if value is not None})
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f} · {task.fields[rate]:,.0f} tokens/s"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(architecture, total=settings.steps, loss=float("nan"), rate=0.0)
        record = train_folder(
            architecture,
            out,
            settings,
            numbers=read_json(config) if config else None,
            tokenizer=tokenizer,
            resume=resume,
            report=lambda step, loss, rate: progress.update(task, completed=step, loss=loss, rate=rate),
        )
    click.echo(
        f"{out}: {record.parameters:,} parameters, {record.tokens:,} tokens in {record.seconds:.0f} s, "
        f"loss {record.losses[-1][1]}, validation {record.validation[-1][1]}"
    )
