"""The training loop: AdamW, warm-up and cosine, gradient clipping, a state to resume from.

On the CPU the same settings give the same run, bit for bit, on the same machine and versions, however often it was
interrupted and resumed: weights and optimizer are kept in float32 as they are, and the batches follow from the seed.
Several ranks divide the rows of each batch, so that their run is that of one rank within rounding, dropout aside.
"""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_flatten, tree_map, tree_unflatten

from zoo.blocks.model import Initialises
from zoo.errors import ZooError
from zoo.runtime import ranks
from zoo.training.data_parallel import (
    averaged,
    broadcast_tree,
    check_same_weights,
    part_of,
    rows_in,
    weight_sums,
)
from zoo.training.loss import scored_targets
from zoo.training.record import TrainingRecord, TrainingSettings
from zoo.training.run_folder import State, save_state

Batch = tuple[mx.array, ...]
Loss = Callable[..., mx.array]
STEPS_SAVED = 200  # at most, between two states that are saved
EACH = 100  # steps from the first whose losses are all recorded; of the later ones each tenth is
SEEDS = 1_000_003  # the seeds of two runs' steps are apart
LAYER = re.compile(r"(^|\.)layers\.\d+$")  # the path of a layer
SAVED = 60.0  # seconds after which a state is saved, between the steps at which it is anyway


class Stopped(ZooError):
    """A run that was asked to stop: its state after `step` steps is saved."""

    def __init__(self, step: int) -> None:
        super().__init__("training was stopped")
        self.step = step


@dataclass
class TrainingCallbacks:
    """Callbacks that observe a run; all are called from the thread that trains.

    `phase(text)` says what is being done before the first step, `total(steps)` comes when it begins: from then on there is
    something to save. `step(step, loss, tokens a second)` comes after each step, `measured(step, loss, validation loss,
    sample)` after each measurement: the loss of that step, None before the first; the sample None where none is made.
    `stop()` is asked between steps and batches whether to save and raise `Stopped`.
    """

    phase: Callable[[str], None] = lambda text: None
    step: Callable[[int, float, float], None] = lambda step, loss, rate: None
    measured: Callable[[int, float | None, float, str | None], None] = field(default=lambda *values: None)
    stop: Callable[[], bool] = lambda: False
    total: Callable[[int], None] = lambda steps: None


def schedule(settings: TrainingSettings) -> Callable[[mx.array], mx.array]:
    """The learning rate of a step: in each part a linear warm-up, then `settings.schedule` down to a tenth of the peak.

    The first step learns, too: the warm-up begins at the peak divided by its steps.
    """
    curves, borders = [], []
    starts = (0, *settings.ends)
    for start, end in zip(starts, (*settings.ends, settings.steps), strict=True):
        steps = end - start
        warmup = min(settings.warmup, max(steps // 10, 1))
        lowest = settings.rate / 10
        left = max(steps - warmup, 1)
        if warmup:
            curves.append(
                optim.linear_schedule(lowest if start else settings.rate / warmup, settings.rate, warmup)
            )
            borders.append(start + warmup)
        if settings.schedule == "cosine":
            curves.append(optim.cosine_decay(settings.rate, left, lowest))
        else:
            end_rate = lowest if settings.schedule == "linear" else settings.rate
            curves.append(optim.linear_schedule(settings.rate, end_rate, left))
        borders.append(end)
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


def checkpoint_layers(model: nn.Module) -> None:
    """Recompute each layer's activations from its input in the backward pass (Chen et al., 2016)."""
    for path, layer in model.named_modules():
        if LAYER.search(path):
            layer.__class__ = _checkpointing_class(type(layer))  # type: ignore[arg-type]


@cache
def _checkpointing_class(kind: type) -> type:
    """A layer's class that keeps only its inputs for the backward pass."""

    def call(self: Any, *inputs: Any, **named: Any) -> Any:
        seed = mx.random.randint(0, 2**31 - 1).item()

        def run(parameters: Any, *inputs: Any, **named: Any) -> Any:
            mx.random.seed(seed)  # both passes drop out the same
            self.update(parameters)
            return kind.__call__(self, *inputs, **named)

        return mx.checkpoint(run)(self.trainable_parameters(), *inputs, **named)

    return type(kind.__name__, (kind,), {"__call__": call, "__module__": kind.__module__})


@dataclass
class Trainer:
    """Trains the trainable parameters of `model` in place.

    `weight` says how much a batch counts where a step averages several, `examples_in` in how many parts it can be divided
    among ranks. The state, with `files` in it, is written to `state` every `every` steps, each minute, at the end, and when
    `callbacks.stop` says so. `validate` returns the held-out loss, or None when there is none; `sample` returns a
    text that the model writes, to be shown with it.
    """

    model: nn.Module
    loss: Loss
    settings: TrainingSettings
    record: TrainingRecord
    state: Path
    files: Mapping[str, bytes] = field(default_factory=dict)
    weight: Callable[[Batch], float] = scored_targets
    examples_in: Callable[[Batch], int] = rows_in
    validate: Callable[[], float | None] | None = None
    sample: Callable[[], str | None] = lambda: None
    callbacks: TrainingCallbacks = field(default_factory=TrainingCallbacks)
    every: int = 0  # by default chosen so that a short run is measured a few times, too
    before: bool = False  # whether the held-out loss is measured before the first step, too

    def __post_init__(self) -> None:
        self.every = self.every or min(STEPS_SAVED, max(self.settings.steps // 4, 50))
        # AdamW's decay is for matrices: norms, biases and a state's rates of decay have no reason to shrink.
        decays = self.settings.decay, 0.0
        optimizers = [optim.AdamW(schedule(self.settings), betas=[0.9, 0.95], weight_decay=d) for d in decays]
        self._optimizer = optim.MultiOptimizer(
            optimizers, [lambda path, array: array.ndim >= 2 and path.endswith("weight")]
        )
        if self.settings.checkpoint:
            checkpoint_layers(self.model)
        self._gradient = nn.value_and_grad(self.model, self.loss)

    def run(self, batches: Iterator[Batch], resume: State | None = None) -> None:
        """Train up to step `settings.steps`, from the state `resume` on the batches of an uninterrupted run.

        Stopped when `callbacks.stop` says so, once the state is saved; ZooError when the loss is no number, and when no
        weight is another at the end.
        """
        tokenizer = {name: hashlib.sha256(data).hexdigest() for name, data in self.files.items()}
        ranks.check_same({**self.record.settings, **self.record.versions, "tokenizer": tokenizer})
        untrained = weight_sums(self.model)
        start = 0 if resume is None else self._restore(resume, batches)
        self.model.update(broadcast_tree(self.model.trainable_parameters()))
        if start:
            self._optimizer.state = broadcast_tree(self._optimizer.state)
        if start and self._is_due(start):  # a run may be stopped while it is measured
            self._measure(start)
        self.model.train()
        clock = time.perf_counter() - self.record.seconds
        saved = time.perf_counter()
        if self.before and not start:
            self.callbacks.phase("measuring the model before the first step")
            self._measure(0)
        self.callbacks.phase(f"step {start + 1}")
        self.callbacks.total(self.settings.steps)
        for step in range(start + 1, self.settings.steps + 1):
            self._step(step, list(islice(batches, self.settings.accumulate)), clock)
            if self._is_due(step):
                self._measure(step)
            now = time.perf_counter()
            asked = ranks.gathered([self.callbacks.stop(), now - saved > SAVED])
            stopped = any(stop for stop, _ in asked)
            if stopped or self._is_due(step) or asked[0][1]:
                check_same_weights(self.model, step)
                save_state(self.state, self.model, self._optimizer, self.record, step, self.files)
                saved = now
            if stopped:
                ranks.barrier()  # until the state is written
                raise Stopped(step)
        if weight_sums(self.model) == untrained:
            raise ZooError(f"no weight has changed in {self.settings.steps} steps: try a larger `rate`")
        self.model.eval()

    def _restore(self, resume: State, batches: Iterator[Batch]) -> int:
        """Put the run back where it was, its batches too, and give the steps that are done.

        Rank 0 alone has the weights and the optimizer's state.
        """
        self._optimizer.init(self.model.trainable_parameters())
        if ranks.rank() == 0:
            _check_alike("weights", resume.model, self.model.trainable_parameters())
            _check_alike("optimizer's state", resume.optimizer, self._optimizer.state)
            self.model.load_weights(resume.model, strict=False)
            self._optimizer.state = tree_unflatten(resume.optimizer)
        for key in ("losses", "validation", "tokens", "seconds"):
            setattr(self.record, key, resume.record[key])
        self.callbacks.phase(f"reading on to step {resume.step}")
        for _ in range(resume.step * self.settings.accumulate):
            if self.callbacks.stop():
                raise Stopped(resume.step)  # as it was saved
            next(batches)
        return resume.step

    def _is_due(self, step: int) -> bool:
        """Whether the run is measured and saved after a step."""
        return step % self.every == 0 or step == self.settings.steps

    def _step(self, step: int, batches: Sequence[Batch], clock: float) -> None:
        """One step of the optimizer; `clock` is when the run would have begun without a break."""
        began = time.perf_counter()
        seed = self.settings.seed * SEEDS + step + (ranks.rank() << 40)
        mx.random.seed(seed % 2**64)  # dropout, of a resumed run too
        loss, gradients = self._average_gradients(batches)
        gradients, norm = optim.clip_grad_norm(gradients, self.settings.clip)
        self._optimizer.update(self.model, gradients)
        del gradients  # so that each is freed as soon as it is used
        mx.eval(self.model.state, self._optimizer.state, loss, norm)
        _check_finite("loss", loss.item(), step)
        _check_finite("norm of the gradients", norm.item(), step)
        tokens = sum(batch[0].size for batch in batches)
        self.record.tokens += tokens
        self.record.seconds = time.perf_counter() - clock
        self.callbacks.step(step, loss.item(), tokens / (time.perf_counter() - began))
        if step <= EACH or step % 10 == 0 or self._is_due(step):
            self.record.losses.append([step, round(loss.item(), 4)])

    def _average_gradients(self, batches: Sequence[Batch]) -> tuple[mx.array, Any]:
        """The loss and the gradients of some batches of all ranks, each counted by its weight; one is held at a time."""
        if len(batches) == ranks.size() == 1:
            return self._gradient(self.model, *batches[0])  # type: ignore[no-any-return]
        total = max(sum(map(self.weight, batches)), 1e-9) / ranks.size()
        loss, sums = mx.array(0.0), None
        for part in (part_of(batch, self.examples_in(batch)) for batch in batches):
            share = self.weight(part) / total
            if not share:
                continue
            part_loss, gradients = self._gradient(self.model, *part)
            scaled = tree_map(lambda array, share=share: array * share, gradients)
            sums = scaled if sums is None else tree_map(mx.add, sums, scaled)
            loss = loss + part_loss * share
            mx.eval(sums, loss)
        return averaged(loss, sums or tree_map(mx.zeros_like, self.model.trainable_parameters()))

    def _measure(self, step: int) -> None:
        """Measure the held-out loss, unless that was done at this step before."""
        record = self.record
        if self.validate is None or any(measured[0] == step for measured in record.validation):
            return
        self.model.eval()  # no dropout
        held_out = self.validate()
        if held_out is not None:
            _check_finite("validation loss", held_out, step)
            record.validation.append([step, round(held_out, 4)])
            last, loss = record.losses[-1] if record.losses else (0, None)
            self.callbacks.measured(
                step, loss if last == step else None, held_out, self.sample() if ranks.rank() == 0 else None
            )
        self.model.train()


def _check_alike(what: str, saved: Sequence[tuple[str, mx.array]], tree: object) -> None:
    """ZooError unless the saved arrays have the names, shapes and types of those in a tree."""
    saved_kinds, model_kinds = (
        {path: (array.shape, array.dtype) for path, array in arrays} for arrays in (saved, tree_flatten(tree))
    )
    if different := sorted(
        path for path in saved_kinds | model_kinds if saved_kinds.get(path) != model_kinds.get(path)
    ):
        raise ZooError(f"the {what} of the run and of the model differ: {different[0]}")


def _check_finite(name: str, value: float, step: int) -> None:
    """ZooError for a measurement that is NaN or infinite."""
    if not math.isfinite(value):
        raise ZooError(f"the {name} is {value} at step {step}: try a smaller `rate`")
