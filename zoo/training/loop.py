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
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_flatten, tree_unflatten

from zoo.blocks.protocols import Initialises
from zoo.errors import ZooError
from zoo.training.record import TrainingRecord, TrainingSettings
from zoo.training.state import State, save_state

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


def initialise(model: Any, seed: int, layers: float, spread: float = 0.02) -> None:
    """GPT-2's initialisation: matrices from N(0, spread), those that end a residual branch scaled by 1/√(2 layers).

    A module below the model that `Initialises` itself then starts its own parameters as it needs.
    """
    keys = iter(mx.random.split(mx.random.key(seed), 10_000))

    def start(path: str, array: mx.array) -> mx.array:
        if array.ndim < 2:
            return array
        ends_branch = path.endswith(("output.weight", "down.weight")) and "layers." in path
        scale = spread / (2 * layers) ** 0.5 if ends_branch else spread
        return mx.random.normal(array.shape, scale=scale, key=next(keys))

    parameters = tree_flatten(model.parameters())
    model.update(tree_unflatten([(path, start(path, array)) for path, array in parameters]))
    for _, module in sorted(model.named_modules(), key=lambda named: named[0]):
        if isinstance(module, Initialises):
            module.initialise(next(keys))
    mx.eval(model.parameters())


def train(
    model: Any,
    batches: Iterator[Batch],
    loss: Loss,
    settings: TrainingSettings,
    record: TrainingRecord,
    *,
    state: Path,
    files: Mapping[str, bytes] | None = None,
    validate: Callable[[], float | None] | None = None,
    sample: Callable[[], str | None] = lambda: None,
    resume: State | None = None,
    watch: TrainingCallbacks | None = None,
    every: int | None = None,
) -> None:
    """Train `model` in place up to step `settings.steps`.

    The state, with `files` in it, is written to `state` every `every` steps, each minute, at the end, and when
    `watch.stop` says so, after which `Stopped` is raised; ZooError when the loss is no number. With `resume` the run goes on from that state, on the batches
    that an uninterrupted one would have seen. `validate` gives None when it was stopped.
    """
    watch = watch or TrainingCallbacks()
    # A short run is measured a few times, too.
    every = every or min(STEPS_SAVED, max(settings.steps // 4, 50))
    # AdamW's decay is for matrices: norms, biases and a state's rates of decay have no reason to shrink.
    decayed = optim.AdamW(schedule(settings), betas=[0.9, 0.95], weight_decay=settings.decay)
    plain = optim.AdamW(schedule(settings), betas=[0.9, 0.95], weight_decay=0.0)
    optimizer = optim.MultiOptimizer([decayed, plain], [_is_matrix])
    start = 0
    if resume is not None:
        resume.restore(model, optimizer, record)
        start = resume.step
        watch.phase(f"reading on to step {start}")
        for _ in range(start):
            if watch.stop():
                raise Stopped(start)  # as it was saved
            next(batches)

    def keep(step: int) -> None:
        save_state(state, model, optimizer, record, step, files or {})

    def measure(step: int) -> None:
        if validate is None or any(measured[0] == step for measured in record.validation):
            return
        found = validate()
        if found is not None:
            record.validation.append([step, round(found, 4)])
            watch.measured(step, record.losses[-1][1] if record.losses else found, found, sample())

    if start and (start % every == 0 or start == settings.steps):  # a run may be stopped while it is measured
        measure(start)
    gradient = nn.value_and_grad(model, loss)
    clock = time.perf_counter() - record.seconds
    saved = time.perf_counter()
    watch.phase(FIRST_STEP)
    for step in range(start + 1, settings.steps + 1):
        began = time.perf_counter()
        batch = next(batches)
        value, gradients = gradient(model, *batch)
        gradients, _ = optim.clip_grad_norm(gradients, settings.clip)
        optimizer.update(model, gradients)
        mx.eval(model.state, optimizer.state, value)
        if not math.isfinite(value.item()):
            raise ZooError(f"the loss is {value.item()} at step {step}: try a smaller `rate`")
        record.tokens += batch[0].size
        record.seconds = time.perf_counter() - clock
        watch.step(step, value.item(), batch[0].size / (time.perf_counter() - began))
        if step % 10 == 0 or step in (1, settings.steps):
            record.losses.append([step, round(value.item(), 4)])
        if step % every == 0 or step == settings.steps:
            measure(step)
        stopped = watch.stop()
        now = time.perf_counter()
        if stopped or step % every == 0 or step == settings.steps or now - saved > SAVED:
            keep(step)
            saved = now
        if stopped:
            raise Stopped(step)


def _is_matrix(path: str, array: mx.array) -> bool:
    return array.ndim >= 2 and path.endswith("weight")
