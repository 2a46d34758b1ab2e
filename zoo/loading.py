"""`zoo.load`: from a source to a model that runs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zoo import runtime
from zoo.architecture import Architecture
from zoo.assemble import assemble
from zoo.checkpoint.quantized import Expected, check_method, gather, with_settings
from zoo.checkpoint.safetensors import open_tensors
from zoo.checkpoint.source import find, read_json
from zoo.checkpoint.weights import fill, warn_of_unread
from zoo.config import Config
from zoo.errors import CheckpointError
from zoo.registry import Registry, registry
from zoo.tokenizer import Tokenizer, load_tokenizer


@dataclass
class Loaded:
    """A model, ready to run. `tokenizer` is None for a folder that has none: prompts are then lists of ids."""

    model: Any
    tokenizer: Tokenizer | None
    architecture: Architecture
    recipe: Any
    config: dict[str, Any]
    folder: Path
    generation_config: dict[str, Any] = field(default_factory=dict)


def load(
    source: str | Path,
    *,
    architecture: str | None = None,
    dtype: str | None = None,
    known: Registry | None = None,
) -> Loaded:
    """Load an architecture's pocket checkpoint ("llama"), a preset ("llama:7b"), a folder or a hub id.

    `architecture` overrides what the config says; `dtype` ("float32", "float16", "bfloat16") casts floats.
    Raises a `ZooError` that names the culprit: SourceError, ConfigError, CheckpointError, TokenizerError.
    """
    known = known or registry()
    place = find(source, known)
    config = read_json(place.folder / "config.json")
    assert config is not None
    config = with_settings(config, place.folder)
    floats = runtime.compute_dtype(dtype)
    if architecture is not None:
        chosen = known.architecture(architecture)
    else:
        chosen = place.architecture or known.resolve(config)
    tensors = gather(open_tensors(place.folder), config, floats)
    recipe = make_recipe(chosen, config, tensors.arrays)
    model = assemble(recipe, known)
    fill(model, chosen, recipe, tensors, floats, Expected(config))
    del tensors  # each is then freed as soon as it is cast
    read(model)
    runtime.prepare()
    return Loaded(
        model=model,
        tokenizer=load_tokenizer(place.folder, config),
        architecture=chosen,
        recipe=recipe,
        config=config,
        folder=place.folder,
        generation_config=read_json(place.folder / "generation_config.json", required=False) or {},
    )


def read(model: Any) -> None:
    """Read the weights that `fill` only promised, a layer at a time, so that no second copy of all is held."""
    import mlx.core as mx

    try:
        for layer in getattr(model, "layers", ()):
            mx.eval(layer.parameters())
        mx.eval(model.parameters())
    except RuntimeError as error:
        raise CheckpointError(f"the weights cannot be read: {error}") from error


def make_recipe(architecture: Architecture, values: Any, tensors: Collection[str] | None = None) -> Any:
    """The recipe of a config; warns of keys that the architecture does not know, refuses what it lacks.

    `tensors` are the names of the checkpoint's, when there is one.
    """
    config = Config(values, tensors=tensors)
    check_method(values)
    for key in ("quantization", "quantization_config"):
        config.get(key)
    recipe = architecture.recipe(config)
    warn_of_unread(config.unread())
    return recipe
