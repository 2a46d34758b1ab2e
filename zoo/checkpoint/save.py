"""A model to a Hugging Face style folder, each file written beside its place and then moved there."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx

from zoo.architecture import Architecture
from zoo.checkpoint.safetensors import SINGLE
from zoo.checkpoint.weights import export


def save(
    folder: Path,
    model: Any,
    architecture: Architecture,
    recipe: Any,
    numbers: Mapping[str, Any],
    dtype: Any = None,
) -> None:
    """Write `model.safetensors` under Hugging Face names and `config.json`; floats are cast to `dtype`, if given.

    `numbers` are those that the recipe was made from; the architecture's `model_type` is added when they have none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = export(model, architecture, recipe)
    if dtype is not None:
        tensors = {name: array.astype(dtype) for name, array in tensors.items()}
    part = folder / f"part-{SINGLE}"
    mx.save_safetensors(str(part), tensors, metadata={"format": "pt"})
    config = {"model_type": (architecture.model_types or [architecture.name])[0], **numbers}
    config["torch_dtype"] = str(next(iter(tensors.values())).dtype).removeprefix("mlx.core.")
    settings = folder / "part-config.json"
    settings.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    os.replace(part, folder / SINGLE)
    os.replace(settings, folder / "config.json")
