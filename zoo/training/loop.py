"""The training loop: AdamW, warm-up and cosine, gradient clipping, checkpoints to resume from, a JSON record."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_flatten, tree_map, tree_unflatten

from zoo.errors import ZooError

Batch = tuple[mx.array, ...]
Loss = Callable[..., mx.array]


@dataclass(frozen=True)
class Settings:
    """How a model is trained. `rate` is the peak learning rate, reached after `warmup` steps, then a cosine to a tenth.

    `corpus` None is the one that suits the model's task.
    """

    steps: int = 2000
    batch: int = 16
    length: int = 64
    rate: float = 3e-3
    warmup: int = 100
    decay: float = 0.1
    clip: float = 1.0
    seed: int = 0
    corpus: str | None = None

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "length"):
            if getattr(self, name) < 1:
                raise ZooError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.rate > 0:
            raise ZooError(f"rate must be positive, got {self.rate}")


@dataclass
class Record:
    """What a training run measured: losses in nats a token as [step, loss], validation likewise, time in seconds.

    `documents` says whether it saw the corpus's documents or single sentences; `tokenizer` how many tokens its own has,
    and how many of them are whole names that the corpus told of.
    """

    architecture: str
    parameters: int
    settings: dict[str, Any]
    documents: str = "documents"
    tokenizer: dict[str, Any] = field(default_factory=dict)
    losses: list[list[float]] = field(default_factory=list)
    validation: list[list[float]] = field(default_factory=list)
    tokens: int = 0
    seconds: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write it as JSON, whole or not at all."""
        temporary = path.with_suffix(".part")
        temporary.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        os.replace(temporary, path)


def schedule(settings: Settings) -> Callable[[mx.array], mx.array]:
    """The learning rate of a step: linear warm-up, then half a cosine down to a tenth of the peak."""
    warmup = min(settings.warmup, max(settings.steps // 10, 1))
    up = optim.linear_schedule(0.0, settings.rate, warmup)
    down = optim.cosine_decay(settings.rate, max(settings.steps - warmup, 1), settings.rate / 10)
    return optim.join_schedules([up, down], [warmup])


def initialise(model: Any, seed: int, layers: int, spread: float = 0.02) -> None:
    """GPT-2's initialisation: matrices from N(0, spread), those that end a residual branch scaled by 1/√(2 layers).

    A module below the model that has a method `initialise(key)` then starts its own parameters as it needs.
    """
    keys = iter(mx.random.split(mx.random.key(seed), 10_000))

    def one(path: str, array: mx.array) -> mx.array:
        if array.ndim < 2:
            return array
        ends_branch = path.endswith(("output.weight", "down.weight")) and "layers." in path
        scale = spread / (2 * layers) ** 0.5 if ends_branch else spread
        return mx.random.normal(array.shape, scale=scale, key=next(keys))

    parameters = tree_flatten(model.parameters())
    model.update(tree_unflatten([(path, one(path, array)) for path, array in parameters]))
    for _, module in sorted(model.named_modules(), key=lambda named: named[0]):
        if hasattr(module, "initialise"):
            module.initialise(next(keys))
    mx.eval(model.parameters())


def train(
    model: Any,
    batches: Iterator[Batch],
    loss: Loss,
    settings: Settings,
    record: Record,
    *,
    folder: Path,
    validate: Callable[[], float] | None = None,
    resume: bool = False,
    report: Callable[[int, float, float], None] = lambda step, loss, rate: None,
    every: int = 200,
) -> None:
    """Train `model` in place for `settings.steps` steps.

    `folder` receives a checkpoint every `every` steps; with `resume` the run goes on from it, on the batches
    that an uninterrupted one would have seen. `report(step, loss, tokens a second)` is called after each step.
    """
    # AdamW's decay is for matrices: norms, biases and a state's rates of decay have no reason to shrink.
    decayed = optim.AdamW(schedule(settings), betas=[0.9, 0.95], weight_decay=settings.decay)
    plain = optim.AdamW(schedule(settings), betas=[0.9, 0.95], weight_decay=0.0)
    optimizer = optim.MultiOptimizer([decayed, plain], [_is_matrix])
    start = _resume(model, optimizer, record, folder) if resume else 0
    for _ in range(start):
        next(batches)
    gradient = nn.value_and_grad(model, loss)
    clock = time.perf_counter() - record.seconds
    for step in range(start + 1, settings.steps + 1):
        began = time.perf_counter()
        batch = next(batches)
        value, gradients = gradient(model, *batch)
        gradients, _ = optim.clip_grad_norm(gradients, settings.clip)
        optimizer.update(model, gradients)
        mx.eval(model.state, optimizer.state, value)
        record.tokens += batch[0].size
        record.seconds = time.perf_counter() - clock
        report(step, value.item(), batch[0].size / (time.perf_counter() - began))
        if step % 10 == 0 or step in (1, settings.steps):
            record.losses.append([step, round(value.item(), 4)])
        if step % every == 0 or step == settings.steps:
            if validate is not None:
                record.validation.append([step, round(validate(), 4)])
            _save(model, optimizer, record, step, folder)


def _is_matrix(path: str, array: mx.array) -> bool:
    return array.ndim >= 2 and path.endswith("weight")


CHECKPOINT, STATE = "checkpoint.safetensors", "checkpoint.json"


def _save(model: Any, optimizer: Any, record: Record, step: int, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {f"model.{path}": array for path, array in tree_flatten(model.parameters())}
    arrays |= {f"optimizer.{path}": array for path, array in tree_flatten(optimizer.state)}
    temporary = folder / "part.safetensors"
    mx.save_safetensors(str(temporary), arrays)
    os.replace(temporary, folder / CHECKPOINT)
    part = folder / "part.json"
    part.write_text(json.dumps({"step": step, "record": asdict(record)}), encoding="utf-8")
    os.replace(part, folder / STATE)


def _resume(model: Any, optimizer: Any, record: Record, folder: Path) -> int:
    if not (folder / STATE).is_file() or not (folder / CHECKPOINT).is_file():
        raise ZooError(f"{folder}: no checkpoint to resume from")
    arrays = dict(mx.load(str(folder / CHECKPOINT)))
    saved = json.loads((folder / STATE).read_text(encoding="utf-8"))
    if saved["record"]["settings"] != record.settings:
        raise ZooError(f"{folder}: the checkpoint was made with other settings; train again without --resume")
    parts: dict[str, list[tuple[str, mx.array]]] = {"model": [], "optimizer": []}
    for name, array in arrays.items():
        where, _, path = name.partition(".")
        parts[where].append((path, array))
    model.load_weights(parts["model"], strict=True)
    optimizer.init(model.trainable_parameters())
    optimizer.state = tree_map(lambda array: array, tree_unflatten(parts["optimizer"]))
    for key in ("losses", "validation", "tokens", "seconds"):
        setattr(record, key, saved["record"][key])
    return saved["step"]
