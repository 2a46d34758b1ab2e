"""The training loop: AdamW, warm-up and cosine, gradient clipping, a state to resume from.

On the CPU the same settings give the same run, bit for bit, on the same machine and versions, however often it was
interrupted and resumed: weights and optimizer are kept in float32 as they are, and the batches follow from the seed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_flatten, tree_unflatten

from zoo.blocks.model import Initialises
from zoo.errors import ZooError
from zoo.training.record import TrainingRecord, TrainingSettings
from zoo.training.run_folder import State, save_state

Batch = tuple[mx.array, ...]
Loss = Callable[..., mx.array]
FIRST_STEP = "the first step"  # the last phase: from now on there is something to save
STEPS_SAVED = 200  # at most, between two states that are saved
SAVED = 60.0  # seconds after which a state is saved, between the steps at which it is anyway


class Stopped(ZooError):
    """A run that was asked to stop: its state after `step` steps is saved."""

    def __init__(self, step: int) -> None:
        super().__init__("training was stopped")
        self.step = step


@dataclass
class TrainingCallbacks:
    """Callbacks that observe a run; all are called from the thread that trains.

    `phase(text)` says what is being done before the first step, `step(step, loss, tokens a second)` comes after each,
    `measured(step, loss, validation loss, sample)` after each measurement, the sample None where none is made. `stop()`
    is asked between steps and batches whether to save and raise `Stopped`.
    """

    phase: Callable[[str], None] = lambda text: None
    step: Callable[[int, float, float], None] = lambda step, loss, rate: None
    measured: Callable[[int, float, float, str | None], None] = field(default=lambda *values: None)
    stop: Callable[[], bool] = lambda: False


def schedule(settings: TrainingSettings) -> Callable[[mx.array], mx.array]:
    """The learning rate of a step: in each part a linear warm-up, then half a cosine down to a tenth of the peak."""
    curves, borders = [], []
    starts = (0, *settings.ends)
    for start, end in zip(starts, (*settings.ends, settings.steps), strict=True):
        steps = end - start
        warmup = min(settings.warmup, max(steps // 10, 1))
        lowest = settings.rate / 10
        curves.append(optim.linear_schedule(lowest if start else 0.0, settings.rate, warmup))
        curves.append(optim.cosine_decay(settings.rate, max(steps - warmup, 1), lowest))
        borders += [start + warmup, end]
    return optim.join_schedules(curves, borders[:-1])


def initialise(model: nn.Module, seed: int, layers: float, init_std: float = 0.02) -> None:
    """GPT-2's initialisation: matrices from N(0, init_std²), those that end a residual branch scaled by 1/√(2 layers).

    Biases of matrices are 0. A module below the model that `Initialises` itself then starts its own parameters as it needs.
    """
    keys = iter(mx.random.split(mx.random.key(seed), 10_000))

    def start(path: str, array: mx.array) -> mx.array:
        if array.ndim < 2:
            return array
        ends_branch = path.endswith(("output.weight", "down.weight")) and "layers." in path
        scale = init_std / (2 * layers) ** 0.5 if ends_branch else init_std
        return mx.random.normal(array.shape, scale=scale, key=next(keys))

    parameters = tree_flatten(model.parameters())
    model.update(tree_unflatten([(path, start(path, array)) for path, array in parameters]))
    modules = [module for _, module in sorted(model.named_modules(), key=lambda named: named[0])]
    for module in modules:
        if isinstance(module, nn.Linear) and "bias" in module:
            module.bias = mx.zeros_like(module.bias)  # MLX draws it, and without the seed
    for module in modules:
        if isinstance(module, Initialises):
            module.initialise(next(keys))
    mx.eval(model.parameters())


@dataclass
class Trainer:
    """Trains `model` in place.

    The state, with `files` in it, is written to `state` every `every` steps, each minute, at the end, and when
    `callbacks.stop` says so. `validate` returns the held-out loss, or None when it was stopped; `sample` returns a
    text that the model writes, to be shown with it.
    """

    model: nn.Module
    loss: Loss
    settings: TrainingSettings
    record: TrainingRecord
    state: Path
    files: Mapping[str, bytes] = field(default_factory=dict)
    validate: Callable[[], float | None] | None = None
    sample: Callable[[], str | None] = lambda: None
    callbacks: TrainingCallbacks = field(default_factory=TrainingCallbacks)
    every: int = 0  # by default chosen so that a short run is measured a few times, too

    def __post_init__(self) -> None:
        self.every = self.every or min(STEPS_SAVED, max(self.settings.steps // 4, 50))
        # AdamW's decay is for matrices: norms, biases and a state's rates of decay have no reason to shrink.
        decays = self.settings.decay, 0.0
        optimizers = [optim.AdamW(schedule(self.settings), betas=[0.9, 0.95], weight_decay=d) for d in decays]
        self._optimizer = optim.MultiOptimizer(
            optimizers, [lambda path, array: array.ndim >= 2 and path.endswith("weight")]
        )
        self._gradient = nn.value_and_grad(self.model, self.loss)

    def run(self, batches: Iterator[Batch], resume: State | None = None) -> None:
        """Train up to step `settings.steps`, from the state `resume` on the batches of an uninterrupted run.

        Stopped when `callbacks.stop` says so, once the state is saved; ZooError when the loss is no number.
        """
        start = 0 if resume is None else self._restore(resume, batches)
        if start and self._is_due(start):  # a run may be stopped while it is measured
            self._measure(start)
        clock = time.perf_counter() - self.record.seconds
        saved = time.perf_counter()
        self.callbacks.phase(FIRST_STEP)
        for step in range(start + 1, self.settings.steps + 1):
            self._step(step, next(batches), clock)
            if self._is_due(step):
                self._measure(step)
            stopped = self.callbacks.stop()
            now = time.perf_counter()
            if stopped or self._is_due(step) or now - saved > SAVED:
                save_state(self.state, self.model, self._optimizer, self.record, step, self.files)
                saved = now
            if stopped:
                raise Stopped(step)

    def _restore(self, resume: State, batches: Iterator[Batch]) -> int:
        """Put the run back where it was, its batches too, and give the steps that are done."""
        try:
            self.model.load_weights(resume.model, strict=True)
        except ValueError as error:
            raise ZooError(f"the run's weights do not fit the model: {error}") from error
        self._optimizer.init(self.model.trainable_parameters())
        self._optimizer.state = tree_unflatten(resume.optimizer)
        for key in ("losses", "validation", "tokens", "seconds"):
            setattr(self.record, key, resume.record[key])
        self.callbacks.phase(f"reading on to step {resume.step}")
        for _ in range(resume.step):
            if self.callbacks.stop():
                raise Stopped(resume.step)  # as it was saved
            next(batches)
        return resume.step

    def _is_due(self, step: int) -> bool:
        """Whether the run is measured and saved after a step."""
        return step % self.every == 0 or step == self.settings.steps

    def _step(self, step: int, batch: Batch, clock: float) -> None:
        """One step of the optimizer; `clock` is when the run would have begun without a break."""
        began = time.perf_counter()
        loss, gradients = self._gradient(self.model, *batch)
        gradients, _ = optim.clip_grad_norm(gradients, self.settings.clip)
        self._optimizer.update(self.model, gradients)
        mx.eval(self.model.state, self._optimizer.state, loss)
        if not math.isfinite(loss.item()):
            raise ZooError(f"the loss is {loss.item()} at step {step}: try a smaller `rate`")
        self.record.tokens += batch[0].size
        self.record.seconds = time.perf_counter() - clock
        self.callbacks.step(step, loss.item(), batch[0].size / (time.perf_counter() - began))
        if step % 10 == 0 or step in (1, self.settings.steps):
            self.record.losses.append([step, round(loss.item(), 4)])

    def _measure(self, step: int) -> None:
        """Measure the held-out loss, unless that was done at this step before."""
        record = self.record
        if self.validate is None or any(measured[0] == step for measured in record.validation):
            return
        found = self.validate()
        if found is not None:
            record.validation.append([step, round(found, 4)])
            last = record.losses[-1][1] if record.losses else found
            self.callbacks.measured(step, last, found, self.sample())
