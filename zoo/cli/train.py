"""`zoo train`: a model from nothing, on a corpus of the zoo or a person's own text."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any

import click

from zoo.cli.source_options import EXISTING_FILE, FOLDER
from zoo.cli.training import check_resume, run_training


def _architecture(_: click.Context, __: click.Parameter, name: str | None) -> str | None:
    """The name; a usage error, with what to type instead, where it is a recipe's file or a folder."""
    path = Path(name or "")
    if name and name.endswith(".json"):
        raise click.UsageError(
            f"{name} is a file: zoo train --recipe {quote(name)} --out FOLDER trains a recipe"
        )
    if name and path.is_dir():
        from zoo.checkpoint.source import is_architecture
        from zoo.host.registry import default_registry

        if not is_architecture(name, default_registry()):
            raise click.UsageError(
                f"{name} is a folder: zoo train --resume --out {quote(name)} goes on with its run; "
                f"zoo train ARCHITECTURE --out FOLDER begins one, and `zoo list` has the architectures"
            )
    return name


@click.command(epilog="Example: zoo train llama --out my-llama --steps 200")
@click.argument("architecture", required=False, callback=_architecture)
@click.option(
    "--recipe",
    type=EXISTING_FILE,
    help="Recipe to train instead of an architecture: JSON as `zoo show NAME --recipe` prints it.",
)
@click.option("--out", type=FOLDER, required=True, help="The folder to write.")
@click.option("--config", type=EXISTING_FILE, help="A config.json to follow.")
@click.option(
    "--tokenizer",
    type=click.Path(path_type=Path, exists=True),
    help="A folder or tokenizer.json to use (default: one trained on the corpus).",
)
@click.option(
    "--corpus",
    metavar="NAME|PATH",
    help='atlas, phrasebook, a plugin\'s; or a text file, a folder of them, a .jsonl with a "text" a line '
    '(translators: "source" and "target").',
)
@click.option("--objective", metavar="NAME", help="What to train it for (default: what suits its task).")
@click.option("--steps", type=int, help="Steps of one batch each, in all.")
@click.option("--batch", type=int, help="Rows a batch.")
@click.option("--length", type=int, help="Tokens a row.")
@click.option("--rate", type=float, help="Peak learning rate.")
@click.option("--seed", type=int, help="Seed of weights and data.")
@click.option("--resume", is_flag=True, help="Go on with the run in OUT; a finished one takes more --steps.")
@click.option("--overwrite", is_flag=True, help="Replace the model in OUT, once the new one is trained.")
@click.option(
    "--forget", is_flag=True, help="Delete the state for --resume at the end (12 bytes a parameter)."
)
def train(
    architecture: str | None,
    recipe: Path | None,
    out: Path,
    config: Path | None,
    tokenizer: Path | None,
    resume: bool,
    overwrite: bool,
    forget: bool,
    **given: Any,
) -> int:
    """Train ARCHITECTURE, or the recipe of a JSON file, from nothing and write a checkpoint folder that `zoo run` loads.

    An architecture's folder loads in transformers too. Without --config its pocket preset's numbers are used. Ctrl-C saves
    the run, and --resume goes on with it, as if it had not been interrupted.
    """
    from zoo.errors import ConfigError
    from zoo.files.reading import read_object_at
    from zoo.host.registry import default_registry
    from zoo.host.resolve import read_recipe
    from zoo.training.run import settings_of, train_folder
    from zoo.training.run_folder import settings_to_resume

    _check_usage(architecture, recipe, resume, overwrite)
    what = read_recipe(recipe, default_registry()) if recipe else architecture
    asked = {key: value for key, value in given.items() if value is not None}
    settings = settings_to_resume(out, asked) if resume or what is None else settings_of(what, asked)
    numbers = read_object_at(config.resolve(), ConfigError, required=True) if config else None
    folder: dict[str, Any] = dict(config=numbers, tokenizer=tokenizer, resume=resume, overwrite=overwrite)
    record = run_training(
        architecture or (recipe.stem if recipe else out.name),
        lambda callbacks: train_folder(what, out, settings, **folder, keep=not forget, callbacks=callbacks),
        f"zoo train{f' {architecture}' if architecture else ''} --out {out} --resume",
    )
    if record is None:
        return 130
    click.echo(
        f"{out}: {record.parameters:,} parameters, {record.tokens:,} tokens in {record.seconds:.0f} s, "
        f"loss {record.losses[-1][1]}, validation {record.validation[-1][1]}"
    )
    return 0


def _check_usage(architecture: str | None, recipe: Path | None, resume: bool, overwrite: bool) -> None:
    """A usage error for options that contradict each other."""
    check_resume(resume, overwrite)
    if architecture and recipe:
        raise click.UsageError("give an ARCHITECTURE or --recipe, not both")
    if not (architecture or recipe or resume):
        raise click.UsageError("give an ARCHITECTURE, or --recipe with a JSON file")
