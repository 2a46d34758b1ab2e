"""What `zoo train` and `zoo tune` share: progress on the error stream, Ctrl-C, and the curve at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from zoo.cli.progress import hide, say, show
from zoo.cli.terminal import visible, write

if TYPE_CHECKING:
    from zoo.training.loop import TrainingCallbacks
    from zoo.training.record import TrainingRecord


def check_resume(resume: bool, overwrite: bool) -> None:
    """A usage error for two options that contradict each other."""
    if resume and overwrite:
        raise click.UsageError("--resume goes on with a run and --overwrite begins anew: give one of them")


def run_training(
    name: str, train: Callable[[TrainingCallbacks], TrainingRecord], resume_command: str
) -> TrainingRecord | None:
    """Run `train` with a progress bar called `name`, and draw its curve. None when it was stopped by Ctrl-C, and saved."""
    from zoo.cli.signals import Interrupts
    from zoo.training.loop import Stopped, TrainingCallbacks
    from zoo.training.record import drawn

    progress = TrainingProgress(name)
    with progress, Interrupts(say) as interrupts:

        def total(steps: int) -> None:
            progress.total(steps)
            interrupts.wait_for_step()

        callbacks = TrainingCallbacks(
            progress.phase, progress.step, progress.measured, interrupts.asked, total
        )
        try:
            record = train(callbacks)
        except Stopped as stopped:
            progress.stop()
            done = f"stopped and saved at step {stopped.step} of {progress.steps}"
            click.echo(f"zoo: {done}; `{resume_command}` goes on", err=True)
            return None
    write(drawn(record) + "\n\n")
    return record


class TrainingProgress:
    """Progress of a training on the error stream: a bar on a terminal, elsewhere only a line a measurement."""

    def __init__(self, name: str) -> None:
        from rich import progress
        from rich.console import Console

        self._name = name
        self.steps = 0  # in all, once they are known
        self._bar = progress.Progress(
            progress.SpinnerColumn(finished_text=""),
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(bar_width=16),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[rates]}"),
            progress.TimeRemainingColumn(),
            speed_estimate_period=3600,  # seconds: a step may take longer than rich's half a minute
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task(visible(name), total=None, rates="")

    def __enter__(self) -> TrainingProgress:
        if not self._bar.disable:
            show(self._bar)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Leave the bar as it is."""
        hide(self._bar)

    def phase(self, text: str) -> None:
        """Show what is being done before the first step is over."""
        self._bar.update(self._task, description=visible(f"{self._name}: {text} …"), refresh=True)

    def total(self, steps: int) -> None:
        """Show how many steps there will be."""
        self.steps = steps
        self._bar.update(self._task, total=steps)

    def step(self, step: int, loss: float, rate: float) -> None:
        """One more step."""
        rates = f"loss {loss:.3f} · {rate:,.0f} tokens/s"
        self._bar.update(self._task, description=visible(self._name), completed=step, rates=rates)

    def measured(self, step: int, loss: float | None, validation: float, sample: str | None) -> None:
        """Print the losses of a measurement, and a text that the model wrote."""
        trained = "" if loss is None else f" · loss {loss:.3f}"
        say(f"step {step}{trained} · validation {validation:.3f}")
        if sample:
            say(f"  {sample}")
