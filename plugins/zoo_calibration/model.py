"""The model that a calibration runs, and its linear layers."""

from __future__ import annotations

from typing import Any

import mlx.nn as nn

from zoo.checkpoint.calibration import CalibrationTask
from zoo.loading import Loaded, load


def loaded_of(task: CalibrationTask) -> Loaded:
    """The checkpoint of a task as a model that runs, with floats."""
    checkpoint = task.opened.checkpoint
    return load(checkpoint.path, architecture=checkpoint.architecture, registry=checkpoint.registry)


def linears_of(model: Any, task: CalibrationTask) -> dict[str, nn.Module]:
    """The linear layers, by path, that the task quantizes; embeddings are none."""
    modules = dict(model.named_modules())
    owners = (path.removesuffix(".weight") for path in task.quantizations)
    return {owner: modules[owner] for owner in owners if not isinstance(modules[owner], nn.Embedding)}
