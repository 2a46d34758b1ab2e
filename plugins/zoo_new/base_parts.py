"""The expressions by which a new plugin refers to the architecture that it builds on: imported, not copied."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from zoo.architecture import Architecture
from zoo.config import Config
from zoo.host.discovery import Plugin
from zoo.host.registry import Registry
from zoo.recipe import Decoder
from zoo_new.block_kinds import check_base_takes
from zoo_new.example_change import Change, change_of
from zoo_new.plugin_names import ScaffoldError


@dataclass(frozen=True)
class BaseParts:
    """The expressions for an architecture's parts in code that has imported `module`.

    `record` is that for the architecture itself where its recipe or rules have no name of their own, else None.
    `checkpoint` are the arguments with which `pocket` finds its embedded checkpoint. `model` is the kind of its recipe,
    "decoder", and `change` what a variant without a block of its own changes.
    """

    module: str
    recipe: str
    weights: str
    mlx_weights: str | None
    quantizes: str | None
    record: str | None
    checkpoint: str | None
    task: str
    causality: str
    model: str
    numbers: Mapping[str, Any]
    change: Change
    requirement: str | None


def parts_of(name: str, registry: Registry, block: str | None, kind: str = "architecture") -> BaseParts:
    """The parts of the architecture `name`; ScaffoldError when the templates cannot make a variant of it.

    `kind` is the kind of model that it must be, "architecture" for any.
    """
    architecture = registry.architecture(name)
    plugin = registry.plugin_of(architecture)
    preset = architecture.preset("pocket") or architecture.preset("tiny")
    if preset is None or preset.config is None:
        raise ScaffoldError(f'`base="{name}"`: it has no pocket or tiny preset to begin with')
    recipe = architecture.recipe_of(Config(preset.config))
    if kind not in ("architecture", recipe.name):
        raise ScaffoldError(f'`base="{name}"`: it is of the kind {recipe.name}, and not {kind}')
    if block is not None:
        if not isinstance(recipe, Decoder):
            raise ScaffoldError(f'`base="{name}"`: it is of the kind {recipe.name}; `block` is for a decoder')
        check_base_takes(name, recipe, block)
    found: dict[str, str | None] = {}
    for field in ("recipe", "weights", "mlx_weights", "quantizes"):
        value = getattr(architecture, field)
        found[field] = None if value is None else _expression(value, plugin) or f"BASE.{field}"
    unnamed = any(text and text.startswith("BASE.") for text in found.values())
    return BaseParts(
        module=plugin.module,
        recipe=found["recipe"] or "",
        weights=found["weights"] or "",
        mlx_weights=found["mlx_weights"],
        quantizes=found["quantizes"],
        record=_record(architecture, plugin) if unnamed else None,
        checkpoint=_checkpoint(architecture, plugin),
        task=architecture.task,
        causality=architecture.causality,
        model=recipe.name,
        numbers=preset.config,
        change=change_of(architecture.recipe_of, preset.config),
        requirement=None if plugin.first_party else f"{plugin.distribution}>={plugin.version}",
    )


def _modules(plugin: Plugin) -> Iterator[tuple[str, ModuleType]]:
    """The plugin's module, and those below it that it has imported."""
    for name, module in sorted(sys.modules.items()):
        if name == plugin.module or name.startswith(f"{plugin.module}."):
            yield name, module


def _expression(value: Any, plugin: Plugin) -> str | None:
    """The public name of an object in the plugin: "zoo_llama.WEIGHTS"; None when it has none."""
    for module, found in _modules(plugin):
        for name, given in vars(found).items():
            if given is value and not name.startswith("_"):
                return f"{module}.{name}"
    return None


def _record(architecture: Architecture, plugin: Plugin) -> str:
    """The expression that finds the architecture's record in its plugin by its name."""
    module = sys.modules.get(plugin.module)
    if module is None or "zoo_architectures" not in vars(module):
        raise ScaffoldError(f'`base="{architecture.name}"`: {plugin.module} gives it no name to build on')
    return f'next(a for a in {plugin.module}.zoo_architectures() if a.name == "{architecture.name}")'


def _checkpoint(architecture: Architecture, plugin: Plugin) -> str | None:
    """The arguments with which `pocket` finds the embedded checkpoint, None where it has none in its plugin's folder."""
    preset, module = architecture.preset("pocket"), sys.modules.get(plugin.module)
    file = vars(module).get("__file__") if module is not None else None
    if preset is None or not preset.embedded or preset.folder is None or file is None:
        return None
    folder = Path(file).parent / "pockets" / preset.folder.name
    return f'{plugin.module}.__file__, "{preset.folder.name}"' if folder == preset.folder else None
