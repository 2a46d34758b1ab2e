"""`zoo train`: a model from nothing, on a corpus of the zoo or a person's own text."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote
from typing import Any

import click

from zoo.cli.source_options import EXISTING_FILE, FOLDER
from zoo.cli.terminal import visible, write


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
    from zoo.cli.signals import Interrupts
    from zoo.errors import ConfigError
    from zoo.files.reading import read_object_at
    from zoo.host.registry import default_registry
    from zoo.host.resolve import read_recipe
    from zoo.training.loop import FIRST_STEP, Stopped, TrainingCallbacks
    from zoo.training.record import drawn
    from zoo.training.run import settings_of, train_folder
    from zoo.training.run_folder import settings_to_resume

    _check_usage(architecture, recipe, resume, overwrite)
    what = read_recipe(recipe, default_registry()) if recipe else architecture
    asked = {key: value for key, value in given.items() if value is not None}
    settings = settings_to_resume(out, asked) if resume or what is None else settings_of(what, asked)
    numbers = read_object_at(config.resolve(), ConfigError, required=True) if config else None
    progress = TrainingProgress(architecture or (recipe.stem if recipe else out.name), settings.steps)
    with progress, Interrupts(progress.say) as interrupts:

        def phase(text: str) -> None:
            progress.phase(text)
            if text == FIRST_STEP:
                interrupts.wait_for_step()

        callbacks = TrainingCallbacks(phase, progress.step, progress.measured, interrupts.asked)
        folder: dict[str, Any] = dict(config=numbers, tokenizer=tokenizer, resume=resume, overwrite=overwrite)
        try:
            record = train_folder(what, out, settings, **folder, keep=not forget, callbacks=callbacks)
        except Stopped as stopped:
            progress.stop()
            command = f"zoo train{f' {architecture}' if architecture else ''} --out {out} --resume"
            done = f"stopped and saved at step {stopped.step} of {settings.steps}"
            click.echo(f"zoo: {done}; `{command}` goes on", err=True)
            return 130
    write(drawn(record) + "\n\n")
    click.echo(
        f"{out}: {record.parameters:,} parameters, {record.tokens:,} tokens in {record.seconds:.0f} s, "
        f"loss {record.losses[-1][1]}, validation {record.validation[-1][1]}"
    )
    return 0


def _check_usage(architecture: str | None, recipe: Path | None, resume: bool, overwrite: bool) -> None:
    """A usage error for options that contradict each other."""
    if resume and overwrite:
        raise click.UsageError("--resume goes on with a run and --overwrite begins anew: give one of them")
    if architecture and recipe:
        raise click.UsageError("give an ARCHITECTURE or --recipe, not both")
    if not (architecture or recipe or resume):
        raise click.UsageError("give an ARCHITECTURE, or --recipe with a JSON file")


class TrainingProgress:
    """Progress of a training on the error stream: a bar on a terminal, elsewhere only a line a measurement."""

    def __init__(self, name: str, steps: int) -> None:
        from rich import progress
        from rich.console import Console

        self._name = name
        self._bar = progress.Progress(
            progress.SpinnerColumn(finished_text=""),
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(bar_width=16),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[rates]}"),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task(visible(name), total=steps, rates="")

    def __enter__(self) -> TrainingProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Leave the bar as it is."""
        self._bar.stop()

    def say(self, text: str) -> None:
        """One line above the bar."""
        if self._bar.disable:
            click.echo(text, err=True)
        else:
            self._bar.console.print(visible(text), markup=False, highlight=False, soft_wrap=True)

    def phase(self, text: str) -> None:
        """Show what is being done before the first step is over."""
        self._bar.update(self._task, description=visible(f"{self._name}: {text} …"), refresh=True)

    def step(self, step: int, loss: float, rate: float) -> None:
        """One more step."""
        rates = f"loss {loss:.3f} · {rate:,.0f} tokens/s"
        self._bar.update(self._task, description=visible(self._name), completed=step, rates=rates)

    def measured(self, step: int, loss: float, validation: float, sample: str | None) -> None:
        """A measurement, and what the model makes of a text."""
        self.say(f"step {step} · loss {loss:.3f} · validation {validation:.3f}")
        if sample:
            self.say(f"  {sample}")
