"""What a plugin says about a family: the `Architecture` record, its presets and its blocks. Imports no mlx."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pluggy

from zoo.config import Config
from zoo.errors import PluginError, PromptError
from zoo.recipe import Spec
from zoo.weights import Ignore, OutputHead, Rename, Rule, Split, Stack, Transpose

__all__ = [
    "API",
    "Architecture",
    "Block",
    "Command",
    "Config",
    "Ignore",
    "OutputHead",
    "Preset",
    "Rename",
    "Rule",
    "Split",
    "Stack",
    "Strategy",
    "Transpose",
    "hookimpl",
    "pocket",
]

API = 1  # the version of this contract that the running zoo speaks

TASKS = ("generate", "translate", "encode", "fill-mask", "denoise")
CAUSALITIES = ("causal", "prefix", "full")
NAME = re.compile(r"[A-Za-z0-9][\w.-]*")

hookimpl = pluggy.HookimplMarker("zoo")


@dataclass(frozen=True)
class Preset:
    """A named checkpoint: `folder` when it is embedded, `hub` ("org/name") when it is published.

    `config` holds the numbers of its config.json, so that it can be counted, drawn and compared unfetched.
    """

    name: str
    summary: str = ""
    folder: Path | None = None
    hub: str | None = None
    config: Mapping[str, Any] | None = None

    @property
    def embedded(self) -> bool:
        """Whether its folder is part of this installation."""
        return self.folder is not None and self.folder.is_dir()


@dataclass(frozen=True)
class Architecture:
    """One architecture, whole. See `docs/architecture.md` for how each field is used.

    `recipe` turns a `Config` into a recipe. `weights` are the rules from Hugging Face tensor names to
    parameter paths; `mlx_weights` those of the layout that MLX conversions publish, where it differs.
    `base` is the architecture that this one is told as a difference from. `quantizes(path, packing)` may give
    another `zoo.checkpoint.packed.Packing` for the layer at a path, or None to keep it whole.

    A name "library::name" is of an architecture that another library's code runs: it is listed apart and serves a
    config only when its plugin's `zoo_resolve` says so and no other architecture claims the `model_type`.
    """

    name: str
    summary: str
    recipe: Callable[[Config], Spec]
    weights: tuple[Rule, ...]
    task: str = "generate"
    model_types: tuple[str, ...] = ()
    base: str | None = None
    causality: str = "causal"
    mlx_weights: tuple[Rule, ...] | None = None
    quantizes: Callable[[str, Any], Any] | None = None
    presets: tuple[Preset, ...] = ()
    references: tuple[str, ...] = ()
    api: int = API

    def __post_init__(self) -> None:
        library, _, plain = self.name.rpartition("::")
        if not NAME.fullmatch(plain) or not NAME.fullmatch(library or plain):
            raise PluginError(f"architecture {self.name!r}: a name is letters, digits, '-', '_' and '.'")
        if self.task not in TASKS:
            raise PluginError(
                f"architecture {self.name}: task {self.task!r} is not one of {', '.join(TASKS)}"
            )
        if self.causality not in CAUSALITIES:
            known = ", ".join(CAUSALITIES)
            raise PluginError(f"architecture {self.name}: causality {self.causality!r} is not one of {known}")
        if any(isinstance(value, str) for value in (self.model_types, self.references)):
            raise PluginError(f"architecture {self.name}: model_types and references are tuples of text")

    @property
    def bridged(self) -> bool:
        """Whether another library's code runs it."""
        return "::" in self.name

    @property
    def layouts(self) -> dict[str, tuple[Rule, ...]]:
        """The weight rules of each published layout, "hf" and "mlx"."""
        return {"hf": self.weights, "mlx": self.mlx_weights or self.weights}

    def preset(self, name: str | None = None) -> Preset | None:
        """The preset of that name; without one, the embedded pocket checkpoint, else the first."""
        if name is None:
            return next((p for p in self.presets if p.embedded), next(iter(self.presets), None))
        return next((p for p in self.presets if p.name == name), None)

    @property
    def full_size(self) -> Preset | None:
        """The first preset that carries the numbers of a published model."""
        return next((p for p in self.presets if p.config and not p.folder), None)


@dataclass(frozen=True)
class Block:
    """A spec and the module that runs it, as "package.module:Class", imported only when a model is built."""

    spec: type[Spec]
    module: str
    summary: str = ""


@dataclass(frozen=True)
class Strategy:
    """A way to make text: the function at "package.module:attribute", imported only when it is used.

    It is called `function(loaded, prompt, **settings)` and gives an iterator of `zoo.Step`. `tasks` are those it
    serves, `options` the settings it takes.
    """

    name: str
    target: str
    tasks: tuple[str, ...]
    options: tuple[str, ...] = ()
    summary: str = ""

    def function(self) -> Callable[..., Any]:
        """The function itself, imported now."""
        return import_target(self.target)

    def settings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The settings given, those left None left out; PromptError for one that this strategy does not take."""
        asked = {name: value for name, value in given.items() if value is not None and value != ()}
        unknown = next((name for name in asked if name not in self.options), None)
        if unknown:
            raise PromptError(f"{unknown.replace('_', '-')}: {self.name} generation has no such setting")
        return asked


@dataclass(frozen=True)
class Command:
    """A subcommand of `zoo`: a click command at "package.module:attribute", imported only when called."""

    name: str
    target: str
    summary: str = field(default="")


def import_target(target: str) -> Any:
    """What "package.module:attribute" names; PluginError when it cannot be imported."""
    package, _, attribute = target.partition(":")
    try:
        return getattr(import_module(package), attribute)
    except (ImportError, AttributeError) as error:
        raise PluginError(f"cannot import {target}: {error}") from error


def pocket(plugin_file: str, name: str, **config: Any) -> Preset:
    """The embedded checkpoint in the plugin's own folder `pockets/NAME`; pass the plugin's `__file__`.

    `config` holds the numbers it is trained with, from nothing, by `zoo train`.
    """
    folder = Path(plugin_file).parent / "pockets" / name
    return Preset("pocket", summary="trained on the atlas corpus, embedded", folder=folder, config=config)
