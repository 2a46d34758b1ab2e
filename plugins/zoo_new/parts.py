"""The parts of a new plugin: its names, the kinds of block it can have, and the architecture that it builds on.

What the base has is imported, not copied: `parts_of` returns the expressions for it, and the change by which a new
architecture without a block of its own differs from it. Imports no mlx.
"""

from __future__ import annotations

import builtins
import keyword
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from zoo.architecture import Architecture, Command
from zoo.config import Config
from zoo.errors import ZooError
from zoo.host.plugins import Plugin
from zoo.host.registry import Registry
from zoo.recipe import Decoder, EncoderDecoder

PATTERN = re.compile(r"[a-z][a-z0-9]*([-.][a-z0-9]+)*")
LONGEST = 60
# Names that the templates use for something else.
USED = {"config", "dataclass", "hookimpl", "names", "pocket", "recipe", "repeat"}


class ScaffoldError(ZooError):
    """A new plugin cannot be written: its name is invalid or taken, its folder exists, or its base is unsuitable."""


@dataclass(frozen=True)
class Names:
    """A name, "my-arch", and those made from it: "zoo-my-arch", "zoo_my_arch", "my_arch"."""

    name: str

    @property
    def distribution(self) -> str:
        """What pip installs."""
        return f"zoo-{self.name}".replace(".", "-")

    @property
    def module(self) -> str:
        """What Python imports."""
        return self.distribution.replace("-", "_")

    @property
    def function(self) -> str:
        """The recipe's or command's function."""
        plain = self.module.removeprefix("zoo_")
        taken = keyword.iskeyword(plain) or plain in vars(builtins) or plain in USED
        return f"{plain}_" if taken else plain

    def class_name(self, suffix: str) -> str:
        """The name of a block's class, with its kind's suffix: "MyArchNorm"."""
        return "".join(part.capitalize() for part in self.module.split("_")[1:]) + suffix


def named(name: str) -> Names:
    """The names made from `name`, with or without "zoo-" before it; ScaffoldError for an invalid name."""
    plain = name.removeprefix("zoo-")
    if not PATTERN.fullmatch(plain) or len(plain) > LONGEST:
        raise ScaffoldError(
            f"{name!r} is not a name for a plugin: small letters, digits, '-' and '.', a letter first, "
            f"at most {LONGEST}, as in my-arch"
        )
    return Names(plain)


def refuse_taken(names: Names, kind: str, registry: Registry, block: str | None = None) -> None:
    """Raise ScaffoldError when something installed has one of the names already."""
    name = names.name
    taken = {
        "architecture": (name in registry or name in registry.model_types, "an architecture or model_type"),
        "block": (f"{block}/{name}" in registry.blocks, "a block"),
        "strategy": (name in registry.strategies, "a strategy"),
        "command": (name in registry.table(Command), "a command"),
    }
    for is_taken, what in (taken.get(kind, taken["architecture"]), *([taken["block"]] if block else [])):
        if is_taken:
            raise ScaffoldError(f"{name!r} is taken: it is {what} of the zoo or of an installed plugin")
    for plugin in registry.plugins:
        if name == plugin.name or names.distribution == plugin.distribution:
            raise ScaffoldError(f"{name!r} is taken: the plugin {plugin.name} ({plugin.label}) is installed")
    if find_spec(names.module) is not None:
        raise ScaffoldError(f"{name!r} is taken: Python has a module {names.module} already")


@dataclass(frozen=True)
class BlockKind:
    """One kind of block.

    `suffix` ends the name of its class, and `summary` describes the example of it. `change` describes how an
    architecture that has it differs from its base, `plain` what it has where there is no base. `path` is the field of
    the recipe that holds it, of each layer where it begins with "layers", which the base must have. `numbers` go into the
    config. `specs` are the names of `zoo.recipe` that an example without a base needs.
    """

    suffix: str
    summary: str
    change: str
    plain: str
    path: str
    specs: list[str]
    numbers: dict[str, Any] = field(default_factory=dict)


KINDS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("kinds.toml").read_text("utf-8"))
BLOCKS = {name: BlockKind(**fields) for name, fields in KINDS["blocks"].items()}


@dataclass(frozen=True)
class Change:
    """One change: a number that the config may have under `key`, `value` in the preset for tests.

    `name` is that of its part in the templates, `summary` describes an architecture that has it.
    """

    name: str
    key: str
    value: float
    summary: str


def change_of(recipe: Callable[[Config], Any], numbers: Mapping[str, Any]) -> Change:
    """The first change that has an effect on the base's recipe, and whose key the base does not read."""
    base = recipe(Config(numbers))
    experts, attention, embedding = (Change(name, **fields) for name, fields in KINDS["changes"].items())
    # Weights of a router that are multiplied by a number.
    scaled = any(hasattr(part, "scale") for path, part in base.walk() if path.endswith(".router"))
    # A norm after the embedding, which undoes its scale, and attention of the usual scale.
    side = base.encoder if isinstance(base, EncoderDecoder) else base
    plain = all(getattr(layer.mixer, "scale", 1.0) is None for layer in base.layers)
    normalised = side.embedding.norm is not None and plain
    for change, applies in ((experts, scaled), (attention, normalised)):
        config = Config({**numbers, change.key: change.value})
        recipe(config)
        if applies and change.key in config.unread():
            return change
    return embedding


@dataclass(frozen=True)
class BaseParts:
    """The expressions for an architecture's parts in code that has imported `module`.

    `record` is that for the `architecture` itself where its recipe or rules have no name of their own, else None.
    `checkpoint` are the arguments with which `pocket` finds its embedded checkpoint. `model` is the kind of its recipe,
    "decoder", and `change` what a variant without a block of its own changes. `in_each_layer` says whether every layer has
    the part that the block replaces.
    """

    architecture: Architecture
    module: str
    recipe: str
    weights: str
    mlx_weights: str | None
    quantizes: str | None
    record: str | None
    checkpoint: str | None
    model: str
    numbers: Mapping[str, Any]
    change: Change
    requirement: str | None
    in_each_layer: bool


def parts_of(name: str, registry: Registry, block: str | None, kind: str = "architecture") -> BaseParts:
    """The parts of the architecture `name`; ScaffoldError when the templates cannot make a variant of it.

    `kind` is the kind of model that it must be, "architecture" for any.
    """
    architecture = registry.architecture(name)
    plugin = registry.plugin_of(architecture)
    preset = architecture.preset("pocket") or architecture.preset("tiny")
    if preset is None or preset.config is None:
        raise ScaffoldError(f'`base="{name}"`: it has no pocket or tiny preset to begin with')
    if architecture.task == "classify":
        raise ScaffoldError(f'`base="{name}"`: it is {architecture.base} with another head; begin from that')
    recipe, with_part = architecture.recipe_of(Config(preset.config)), [True]  # of its layers
    if kind not in ("architecture", recipe.name):
        raise ScaffoldError(f'`base="{name}"`: it is of the kind {recipe.name}, and not {kind}')
    if block is not None:
        if not isinstance(recipe, Decoder):
            raise ScaffoldError(f'`base="{name}"`: it is of the kind {recipe.name}; `block` is for a decoder')
        path = BLOCKS[block].path.removeprefix("layers.")
        if block == "norm":
            if recipe.embedding.norm is not None:
                raise ScaffoldError(f'`base="{name}"`: its embedding has a norm already')
        else:
            with_part = [any(found == path for found, _ in layer.walk()) for layer in recipe.layers]
        if not any(with_part):
            part = path.rpartition(".")[2]
            raise ScaffoldError(f'`base="{name}"`: its layers have no {part} that the block could replace')
    found: dict[str, Any] = {}
    for part in ("recipe", "weights", "mlx_weights", "quantizes"):
        value = getattr(architecture, part)
        found[part] = None if value is None else _expression(value, plugin) or f"BASE.{part}"
    unnamed = any(text and text.startswith("BASE.") for text in found.values())
    return BaseParts(
        architecture=architecture,
        module=plugin.module,
        **found,
        record=_record(architecture, plugin) if unnamed else None,
        checkpoint=_checkpoint(architecture, plugin),
        model=recipe.name,
        # The new one has a model_type of its own.
        numbers={key: value for key, value in preset.config.items() if key != "model_type"},
        change=change_of(architecture.recipe_of, preset.config),
        requirement=None if plugin.first_party else f"{plugin.distribution}>={plugin.version}",
        in_each_layer=all(with_part),
    )


def _expression(value: object, plugin: Plugin) -> str | None:
    """The public name of an object in the plugin's imported modules: "zoo_llama.WEIGHTS"; None when it has none."""
    for module, found in sorted(sys.modules.items()):
        if f"{module}.".startswith(f"{plugin.module}."):
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
    file = getattr(module, "__file__", None)
    if preset is None or not preset.embedded or preset.folder is None or file is None:
        return None
    folder = Path(file).parent / "pockets" / preset.folder.name
    return f'{plugin.module}.__file__, "{preset.folder.name}"' if folder == preset.folder else None
