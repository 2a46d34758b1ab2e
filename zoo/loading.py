"""`zoo.load`: from a source to a model that runs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zoo import runtime
from zoo.architecture import Architecture
from zoo.assemble import assemble
from zoo.checkpoint.quantized import Expected, check_method, gather, warn_of_differences
from zoo.checkpoint.safetensors import open_tensors
from zoo.checkpoint.source import find, read_json
from zoo.checkpoint.weights import fill, match, packings, warn_of_unread
from zoo.config import Config
from zoo.errors import CheckpointError, SourceError
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
    adapter: str | Path | None = None,
    context: int | None = None,
    force: bool = False,
    revision: str | None = None,
    known: Registry | None = None,
) -> Loaded:
    """Load an architecture's pocket checkpoint ("llama"), a preset ("llama:7b"), a folder or a hub id.

    `architecture` overrides what the config says; `dtype` ("float32", "float16", "bfloat16") casts floats; `adapter` is
    a folder of mlx-lm's LoRA or DoRA, `revision` a hub id's branch, tag or commit. A model that would not fit in this
    machine's memory with a cache of `context` tokens is refused before it is read, unless `force`. Raises a
    `ZooError` that names the culprit: SourceError, ConfigError, CheckpointError, TokenizerError.
    """
    opened = open_model(source, architecture=architecture, revision=revision, known=known)
    model, recipe = opened.model, opened.recipe
    floats = runtime.compute_dtype(dtype)
    if adapter is None:
        fill(model, opened.parameters, floats)
    else:
        from zoo.checkpoint.adapter import adapt, fuse_plain, open_adapter

        changes = fuse_plain(opened.parameters, open_adapter(adapter, opened))
        fill(model, opened.parameters, floats)
        adapt(model, changes, opened.parameters, floats)
    opened.parameters.clear()  # each is then freed as soon as it is cast
    if not force:
        check_fit(model, recipe, floats.size if floats else 2, context)
    read(model)
    runtime.prepare()
    return Loaded(
        model=model,
        tokenizer=load_tokenizer(opened.folder, opened.config),
        architecture=opened.architecture,
        recipe=recipe,
        config=opened.config,
        folder=opened.folder,
        generation_config=read_json(opened.folder / "generation_config.json", required=False) or {},
    )


@dataclass
class Opened:
    """A checkpoint whose tensors are found and named, but not read: `parameters` by path, `model` without them.

    `defaults` are the values that stood in for keys which the config does not have.
    """

    model: Any
    parameters: dict[str, Any]
    architecture: Architecture
    recipe: Any
    config: dict[str, Any]
    defaults: dict[str, Any]
    folder: Path


def open_model(
    source: str | Path,
    *,
    architecture: str | None = None,
    revision: str | None = None,
    known: Registry | None = None,
) -> Opened:
    """Find a source, its architecture, its recipe and which tensor is which parameter; nothing is read yet."""
    known = known or registry()
    place = find(source, known, revision)
    config = read_json(place.folder / "config.json")
    assert config is not None
    if architecture is not None:
        chosen = known.architecture(architecture)
    else:
        chosen = place.architecture or known.resolve(config)
    tensors = gather(open_tensors(place.folder), config)
    recipe, defaults = told_recipe(chosen, config, tensors.arrays)
    model = assemble(recipe, known)
    if hasattr(model, "adopt"):
        tensors = model.adopt(tensors)
    parameters = match(model, chosen, recipe, tensors)
    warn_of_differences(Expected(config), packings(tensors, parameters))
    return Opened(model, parameters, chosen, recipe, config, defaults, place.folder)


def check_fit(model: Any, recipe: Any, width: int, context: int | None = None) -> None:
    """SourceError with the sum when weights and a cache of `context` tokens are more than the machine's memory.

    `width`: bytes of a number in the cache.
    """
    from mlx.utils import tree_flatten

    room = runtime.total_memory()
    weights = {id(array): array.nbytes for _, array in tree_flatten(model.parameters())}
    held = sum(weights.values())
    tokens = min(context or CONTEXT, recipe.context or CONTEXT)
    cache = recipe.cached(recipe.dim) * tokens * width
    if room is not None and held + cache > room:
        parts = f"weights {held / GB:.1f} GB, cache of {tokens} tokens {cache / GB:.1f} GB"
        raise SourceError(
            f"the model does not fit: {parts}, this machine {room / GB:.1f} GB; --force tries nevertheless"
        )


CONTEXT = 4096  # tokens, where nothing says how long a text will be
GB = 1e9


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
    return told_recipe(architecture, values, tensors)[0]


def told_recipe(
    architecture: Architecture, values: Any, tensors: Collection[str] | None = None
) -> tuple[Any, dict[str, Any]]:
    """The same, with the defaults that stood in for keys the config does not have."""
    config = Config(values, tensors=tensors)
    check_method(values)
    for key in ("quantization", "quantization_config"):
        config.get(key)
    recipe = architecture.recipe(config)
    warn_of_unread(config.unread())
    return recipe, config.defaults()
