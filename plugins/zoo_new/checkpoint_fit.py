"""Measures how well an architecture fits a checkpoint: parameters without tensors, tensors without parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlx.utils import tree_flatten

from zoo import weights
from zoo.architecture import Architecture
from zoo.assemble import assemble
from zoo.checkpoint.folder import CONFIG
from zoo.checkpoint.quantized_matrix import join
from zoo.checkpoint.safetensors import Tensors, open_tensors
from zoo.config import Config
from zoo.errors import ConfigError, RecipeError
from zoo.files.reading import read_object
from zoo.host.registry import Registry
from zoo.weights import Ignore
from zoo_new.plugin_names import ScaffoldError

Shape = tuple[int, ...]
BUFFERS = ("inv_freq", "position_ids", "masked_bias", "num_batches_tracked")  # computed, never trained
MOST = 10**12  # parameters of a recipe that is still assembled, unevaluated


@dataclass(frozen=True)
class SourceCheckpoint:
    """A checkpoint's folder, the values of its config.json, and its tensors, of which only the headers are read."""

    folder: Path
    values: Mapping[str, Any]
    tensors: Tensors


def read_source(folder: Path) -> SourceCheckpoint:
    """Read a folder's config and tensor headers.

    ScaffoldError, ConfigError or CheckpointError for a folder that cannot be read or is quantized.
    """
    if not folder.is_dir():
        raise ScaffoldError(f"{folder}: is no folder with a config.json and safetensors")
    values = read_object(folder, CONFIG, ConfigError, required=True)
    for key in ("quantization_config", "quantization"):
        if values.get(key):
            raise ScaffoldError(
                f"{folder}: is quantized ({key}); give the folder of the floats it was made from"
            )
    return SourceCheckpoint(folder, values, open_tensors(folder))


@dataclass(frozen=True)
class Fit:
    """An architecture on a checkpoint, whose config has `values`: shapes of the parameters `wanted` and `found`, by path, and of tensors, by name.

    No rule takes the tensors that are `left`; rules drop those that are `ignored`.
    """

    architecture: Architecture
    values: Mapping[str, Any]
    config: Config
    recipe: Any
    wanted: Mapping[str, Shape]
    found: Mapping[str, Shape]
    left: Mapping[str, Shape]
    ignored: Mapping[str, Shape]

    @property
    def wrong(self) -> dict[str, tuple[Shape, Shape]]:
        """The parameters whose tensor has another shape: the one wanted, and the one found."""
        both = self.wanted.keys() & self.found.keys()
        return {
            path: (self.wanted[path], self.found[path])
            for path in sorted(both)
            if self.wanted[path] != self.found[path]
        }

    @property
    def missing(self) -> dict[str, Shape]:
        """The parameters that no tensor fills."""
        return {path: shape for path, shape in self.wanted.items() if path not in self.found}

    @property
    def surplus(self) -> dict[str, Shape]:
        """The parameters that the rules produce and the model lacks."""
        return {path: shape for path, shape in self.found.items() if path not in self.wanted}

    @property
    def distance(self) -> int:
        """How many kinds of parameters and tensors do not fit; layers and experts count as one."""
        return sum(len(kinds(side)) for side in (self.wrong, self.missing, self.surplus, self.left))

    @property
    def share(self) -> float:
        """Of all kinds of parameters and tensors, the share that fits."""
        good = self.wanted.keys() & self.found.keys() - self.wrong.keys()
        return len(kinds(good)) / ((len(kinds(good)) + self.distance) or 1)

    def rank_after(self, changes: int) -> tuple[float, ...]:
        """Sort key of fits, the nearest first; `changes` is how many changes the architecture needed."""
        odd = len(self.config.unread()) + changes
        return -self.share, len(kinds(self.ignored)), odd, len(self.config.defaults())


def fit(architecture: Architecture, source: SourceCheckpoint, registry: Registry) -> Fit:
    """How the architecture fits the checkpoint; ZooError when its recipe cannot be made of the config."""
    config = Config(source.values, tensors=source.tensors.arrays)
    recipe = architecture.recipe_of(config)
    if recipe.parameters(recipe.dim) > MOST:
        raise RecipeError(f"{architecture.name}: more than {MOST:,} parameters")
    model = assemble(recipe, registry)
    found, left = weights.apply(architecture.weights, source.tensors.arrays, recipe, join)
    wanted = dict(tree_flatten(model.parameters()))
    drops = [rule for rule in architecture.weights if type(rule) is Ignore]
    kept, _ = weights.apply(drops, source.tensors.arrays, recipe, join)[::-1]
    ignored = {
        name: array
        for name, array in source.tensors.arrays.items()
        if name not in kept and not name.endswith(BUFFERS)
    }
    sides = (wanted, found, left, ignored)
    return Fit(architecture, source.values, config, recipe, *(shapes(arrays) for arrays in sides))


def shapes(arrays: Mapping[str, Any]) -> dict[str, Shape]:
    """The shape of each array."""
    return {name: tuple(array.shape) for name, array in arrays.items()}


def kinds(names: Iterable[str]) -> dict[str, list[str]]:
    """Names by their pattern: those of all layers and experts together."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(pattern(name), []).append(name)
    return found


def pattern(name: str) -> str:
    """A tensor name or parameter path with {i} in place of the layer number and {e} in place of the expert number."""
    steps: list[str] = []
    for step in name.split("."):
        if step.isdecimal() and steps and steps[-1] == "experts":
            step = "{e}"
        elif step.isdecimal() and "{i}" not in steps:
            step = "{i}"
        steps.append(step)
    return ".".join(steps)
