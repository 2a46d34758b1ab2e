"""Opens a checkpoint: finds its architecture, its recipe, and the parameter for each tensor, before weights are read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx

from zoo import weights
from zoo.architecture import Architecture
from zoo.assemble import assemble
from zoo.blocks.model import Model
from zoo.checkpoint.checkpoint import Checkpoint, open_checkpoint
from zoo.checkpoint.division import divided_parameters
from zoo.checkpoint.parameters import match, resolved
from zoo.checkpoint.quantized_matrix import join, read
from zoo.checkpoint.quantized_tensors import (
    SETTINGS_KEYS,
    ExpectedQuantization,
    check_method,
    warn_of_differences,
)
from zoo.checkpoint.safetensors import Tensors
from zoo.checkpoint.source import find
from zoo.checkpoint.ties import break_ties, untied_values
from zoo.config import Config
from zoo.errors import CheckpointError, ConfigError, SourceError, warn
from zoo.frozen import Frozen, frozen
from zoo.host.registry import Registry, default_registry
from zoo.recipe import Model as Recipe
from zoo.recipe.division import Division

Report = Callable[[int, int], None]  # called with the amount done and the total


@frozen(kw_only=True)
class OpenOptions(Frozen):
    """How a source is opened: what `zoo.load` and `convert`, which describe these options, have in common.

    `registry` has the plugins. SourceError for a name that is no text.
    """

    architecture: str | Architecture | None = None
    revision: str | None = None
    dtype: str | None = None
    repack: int | None = None
    report: Report | None = None
    registry: Registry = field(default_factory=default_registry)

    def __post_init__(self) -> None:
        if not isinstance(self.architecture, str | Architecture | None):
            raise SourceError(f"`architecture` must be a name, got {self.architecture!r:.60}")
        if not isinstance(self.revision, str | None):
            raise SourceError(f"`revision` must be a name, got {self.revision!r:.60}")

    @property
    def floats(self) -> mx.Dtype | None:
        """The dtype that floats are cast to; None keeps the checkpoint's."""
        return getattr(mx, self.dtype) if self.dtype else None


@dataclass
class Opened:
    """A checkpoint whose tensors are matched but not read: `parameters` by path, and the `model` without them.

    `config` is the checkpoint's, with what its tensors say instead. `layout` names the weight rules that turn its tensors into
    parameters. `defaults` are the values used for keys that
    the config lacks. Unless the checkpoint is lazy, parameters have only shapes until `read` is called. `recipe` describes
    the whole model; `divide` leaves a rank's part of the model and of its parameters, which `read` then reads. Floats are
    cast to the dtype of the `options`.
    """

    options: OpenOptions
    checkpoint: Checkpoint
    config: dict[str, Any]
    model: Model
    parameters: dict[str, Any]
    recipe: Recipe
    defaults: dict[str, Any]
    layout: str
    division: Division | None = None
    rank: int = 0

    def layers(self) -> Iterator[tuple[dict[str, Any], Callable[[], dict[str, Any]]]]:
        """Groups of parameters, each with the function that reads it.

        A lazy checkpoint has one group. The parameters of other checkpoints have only shapes before they are read.
        """
        if self.checkpoint.lazy:
            yield self.parameters, lambda: self.parameters
            return
        placeholders = self.checkpoint.tensors(self.options.floats)
        for names in self.checkpoint.groups():
            some = replace(placeholders, arrays={name: placeholders.arrays[name] for name in names})
            yield self._placed(some), partial(self._read, names)

    def _read(self, names: Collection[str] | None = None) -> dict[str, Any]:
        return self._placed(self.checkpoint.read(self.options.floats, names))

    def _placed(self, tensors: Tensors) -> dict[str, Any]:
        """The parameters made of some of the tensors, which were matched as a whole."""
        rules = self.checkpoint.architecture.layouts_of(tensors.metadata.get("format"))[self.layout]
        parameters, _ = weights.apply(rules, tensors.arrays, self.recipe, join)
        return resolved(self.model, parameters)

    def read(self) -> None:
        """Read the parameters, unless they are lazy and are read when evaluated.

        Those of a divided model are read here; `report` is called with the bytes read and those in all.
        """
        if self.division is not None:
            parameters = dict(self._read_share(self.division))
            self.model = assemble(self.division.spec, self.checkpoint.registry)
            self.parameters = resolved(self.model, parameters)
        elif not self.checkpoint.lazy:
            self.parameters = self._read()
        if not self.checkpoint.lazy:
            self.checkpoint.warn_of_losses(self.options.floats)

    def divide(self, division: Division, rank: int) -> None:
        """Keep a rank's share of the parameters, unread."""
        self.division, self.rank = division, rank
        self.parameters = divided_parameters(self.parameters, division, rank)

    def _read_share(self, division: Division) -> Iterator[tuple[str, Any]]:
        """A rank's parameters, each read and freed of the tensor that it is a part of before the next."""
        total, done = sum(tensor.nbytes for tensor in self.parameters.values()), 0
        for _, read_group in self.layers():
            group = read_group()
            share = group if self.checkpoint.lazy else divided_parameters(group, division, self.rank)
            for path in list(share):
                try:
                    tensor = read(share.pop(path))
                except RuntimeError as error:
                    raise CheckpointError(
                        f"{self.checkpoint.path}: {path} cannot be read: {error}"
                    ) from error
                done += tensor.nbytes
                yield path, tensor
                if self.options.report is not None:
                    self.options.report(done, total)

    def not_finite(self, name: str) -> CheckpointError:
        """The error for a parameter or tensor that holds NaN or infinity, which names the stored tensor it came from."""
        found = self.checkpoint.find_not_finite()
        if found is not None:
            return CheckpointError(f"{found[0]}: tensor {found[1]} holds NaN or infinity")
        asked = f", too large for {self.options.dtype}?" if self.options.dtype else ""
        return CheckpointError(f"{self.checkpoint.path}: {name} comes to hold NaN or infinity{asked}")


def open_model(source: str | Path, options: OpenOptions | None = None) -> Opened:
    """Find a source, its architecture, its recipe and the parameter for each tensor, before weights are read."""
    options = options or OpenOptions()
    if not isinstance(source, str | Path) or not source:
        raise SourceError(f"the source must be a name or a path, got {source!r:.60}")
    registry = options.registry
    found = find(source, registry, options.revision)
    asked = (
        found.architecture if options.architecture is None else registry.architecture(options.architecture)
    )
    checkpoint = open_checkpoint(found.path, registry, asked, repack=options.repack)
    values, chosen = checkpoint.config, checkpoint.architecture
    tensors = checkpoint.tensors(options.floats)
    config = checkpoint.config_of(tensors.arrays)
    described = make_recipe(chosen, config, registry)
    recipe = break_ties(described, checkpoint, tensors)
    untied = untied_values(recipe, checkpoint, tensors) if recipe != described else {}
    count, stored = recipe.parameters(recipe.dim), sum(tensor.nbytes for tensor in tensors.arrays.values())
    if count > 8 * stored:  # more parameters than bits, refused before the model is made
        raise ConfigError(
            f"{config.origin.name}: its sizes make {count:,} parameters, "
            f"but the weights are {stored:,} bytes in all"
        )
    model = assemble(recipe, registry)
    tensors = model.sanitize(tensors)  # another library's model renames its tensors
    parameters, layout = match(model, chosen, recipe, tensors)
    warn_of_differences(ExpectedQuantization(values), tensors, parameters)
    config_used, defaults = values | untied, config.defaults() | untied
    return Opened(options, checkpoint, config_used, model, parameters, recipe, defaults, layout)


def make_recipe(architecture: Architecture, values: Mapping[str, Any], registry: Registry) -> Recipe:
    """The recipe of a config. Warns of keys that the architecture does not know; ConfigError for a missing key.

    `registry` has the quantized formats.
    """
    config = values if isinstance(values, Config) else Config(values)
    check_method(config, registry)
    config.ignore(*SETTINGS_KEYS)
    recipe = architecture.recipe_of(config)
    if keys := config.unread():
        warn(f"{config.origin.name}: unknown to this architecture, ignored: {', '.join(keys)}")
    return recipe
