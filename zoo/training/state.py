"""The state of a run, to resume from: one file, replaced atomically."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_flatten, tree_unflatten

from zoo.errors import CheckpointError, ZooError
from zoo.files.writing import replacing
from zoo.training.record import TrainingRecord

STATE = "state.safetensors"
FORMAT = "1"


@dataclass(frozen=True)
class State:
    """A run after `step` steps: its record so far, weights and optimizer by path, the tokenizer's files by name."""

    step: int
    record: dict[str, Any]
    model: list[tuple[str, mx.array]]
    optimizer: list[tuple[str, mx.array]]
    files: dict[str, bytes]

    def restore(self, model: nn.Module, optimizer: optim.Optimizer, record: TrainingRecord) -> None:
        """Put everything back where it was."""
        try:
            model.load_weights(self.model, strict=True)
        except ValueError as error:
            raise ZooError(f"the run's weights do not fit the model: {error}") from error
        optimizer.init(model.trainable_parameters())
        optimizer.state = tree_unflatten(self.optimizer)
        for key in ("losses", "validation", "tokens", "seconds"):
            setattr(record, key, self.record[key])


def state_path(folder: Path) -> Path:
    """The path of the state of a run that writes `folder`."""
    return folder / "run" / STATE


def save_state(
    path: Path,
    model: nn.Module,
    optimizer: optim.Optimizer,
    record: TrainingRecord,
    step: int,
    files: Mapping[str, bytes],
) -> None:
    """Write the state under a temporary name, then rename it; ZooError when it cannot be written."""
    arrays = {f"model.{name}": array for name, array in tree_flatten(model.parameters())}
    arrays |= {f"optimizer.{name}": array for name, array in tree_flatten(optimizer.state)}
    arrays |= {f"file.{name}": mx.array(memoryview(data), mx.uint8) for name, data in files.items()}
    metadata = {"zoo_state": FORMAT, "step": str(step), "record": json.dumps(asdict(record))}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as part:
            mx.save_safetensors(str(part), arrays, metadata=metadata)
    except (OSError, RuntimeError) as error:
        raise CheckpointError(f"{path}: cannot be written ({error})") from error


def open_state(path: Path) -> State:
    """The state in a file, its arrays read when they are used; ZooError when there is none, or it is damaged."""
    if not path.is_file():
        raise ZooError(f"{path.parent.parent}: no run to resume")
    try:
        arrays, metadata = mx.load(str(path), return_metadata=True)
        if metadata.get("zoo_state") != FORMAT:
            raise CheckpointError(f"{path}: holds no state of a run that this zoo reads")
        step, record = int(metadata["step"]), json.loads(metadata["record"])
        parts: dict[str, dict[str, mx.array]] = {"model": {}, "optimizer": {}, "file": {}}
        for name, array in arrays.items():
            where, _, rest = name.partition(".")
            parts[where][rest] = array
        files = {name: bytes(memoryview(array)) for name, array in parts["file"].items()}
        missing = {"architecture", "settings", "losses", "validation", "tokens", "seconds"} - set(record)
        if missing:
            raise KeyError(min(missing))
    except CheckpointError:
        raise
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path}: the state is damaged ({error})") from error
    return State(step, record, list(parts["model"].items()), list(parts["optimizer"].items()), files)
