"""What a plugin says about a family: the `Architecture` record, its presets and its blocks. Imports no mlx."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pluggy

from zoo.config import Config
from zoo.errors import PluginError, PromptError, in_words
from zoo.gguf import GGUF
from zoo.recipe import Spec
from zoo.settings import Setting
from zoo.weights import Ignore, OutputHead, Rename, Rule, Split, Stack, Transpose

__all__ = [
    "API",
    "GGUF",
    "Architecture",
    "Block",
    "Command",
    "Config",
    "Ignore",
    "OutputHead",
    "Preset",
    "QuantizedFormat",
    "Rename",
    "Rule",
    "Sampler",
    "Setting",
    "Split",
    "Stack",
    "Strategy",
    "TokenizerFormat",
    "Transpose",
    "hookimpl",
    "pocket",
]

API = 1  # the version of this contract that the running zoo speaks

TASKS = ("generate", "translate", "encode", "fill-mask", "denoise")
CAUSALITIES = ("causal", "prefix", "full")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")
BRIDGED = re.compile(rf"{NAME.pattern}(?:::\w[\w.-]*)?")
TARGET = re.compile(r"[\w.]+:\w+")

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
    """One architecture, whole.

    `recipe` turns a `Config` into a recipe. `weights` are the rules from Hugging Face tensor names to parameter paths;
    `mlx_weights` those of the layout that MLX conversions publish, where it differs; `gguf` says how GGUF files
    hold it, if the zoo reads those. `model_types` are the values of
    a checkpoint's `model_type` that mean this architecture. `presets` are its named checkpoints: "tiny" or "pocket"
    has numbers small enough for tests, and "pocket" those that `zoo train` starts from.

    `task` is what it does: "generate", "translate", "encode", "fill-mask" or "denoise" (text by uncovering masks).
    `causality` is what a token sees: "causal", what came before it; "prefix", all of the prompt besides; "full",
    everything. `base` is the architecture that this one is told as a difference from. `references` say where it was
    published. `quantizes(path, packing)` may give another `zoo.checkpoint.packed.Packing` for the layer at a path, or
    None to keep it whole. `api` is the version of this contract that the plugin was written for.

    A name "library::name" is of an architecture that another library's code runs: it is listed apart, and serves a
    config when its plugin's `zoo_resolve` says so and no other architecture has the `model_type`.
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
    gguf: GGUF | None = None
    quantizes: Callable[[str, Any], Any] | None = None
    presets: tuple[Preset, ...] = ()
    references: tuple[str, ...] = ()
    api: int = API

    def __post_init__(self) -> None:
        told = f"architecture {_checked_name('architecture', self.name, BRIDGED)}"
        for field_name, options in (("task", TASKS), ("causality", CAUSALITIES)):
            value = getattr(self, field_name)
            if value not in options:
                raise PluginError(f"{told}: {field_name} {value!r} is not one of {', '.join(options)}")
        if not callable(self.recipe):
            raise PluginError(f"{told}: recipe is a function from a config, not {self.recipe!r}")
        _tuples(told, self, ("weights", "mlx_weights"), Rule)
        _tuples(told, self, ("presets",), Preset)
        _tuples(told, self, ("model_types", "references"), str)
        if not (self.quantizes is None or callable(self.quantizes)):
            raise PluginError(
                f"{told}: quantizes is a function of a path and a packing, not {self.quantizes!r}"
            )
        if not isinstance(self.api, int):
            raise PluginError(f"{told}: api is a whole number, not {self.api!r}")

    @property
    def bridged(self) -> bool:
        """Whether another library's code runs it."""
        return "::" in self.name

    @property
    def layouts(self) -> dict[str, tuple[Rule, ...]]:
        """The weight rules of each published layout, "hf" and "mlx"."""
        return {"hf": self.weights, "mlx": self.mlx_weights or self.weights}

    def layouts_of(self, format: str | None) -> dict[str, tuple[Rule, ...]]:
        """The layouts that a checkpoint may have whose metadata name this format."""
        if format == "gguf":
            return {"gguf": self.gguf.weights if self.gguf else ()}
        return self.layouts

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

    def __post_init__(self) -> None:
        if not (
            isinstance(self.spec, type) and issubclass(self.spec, Spec) and self.spec.kind and self.spec.name
        ):
            raise PluginError(
                f"block {self.spec!r}: a block is told by a subclass of Spec with a kind and a name"
            )
        _target(f"block {self.spec.block()}", self.module)


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

    def __post_init__(self) -> None:
        told = f"strategy {_checked_name('strategy', self.name)}"
        _target(told, self.target)
        _tuples(told, self, ("tasks", "options"), str)
        if unknown := set(self.tasks) - set(TASKS):
            raise PluginError(f"{told}: task {min(unknown)!r} is not one of {', '.join(TASKS)}")

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
class Sampler:
    """A way to narrow what the next token is drawn from: a function at "package.module:attribute".

    It is called `function(logits, **settings)` with float32 logits (B, V), divided by the temperature, and gives logits
    of that shape, -inf for a token that must not be drawn. `settings` declares what it takes.
    """

    name: str
    target: str
    settings: tuple[Setting, ...] = ()
    summary: str = ""

    def __post_init__(self) -> None:
        told = f"sampler {_checked_name('sampler', self.name)}"
        _target(told, self.target)
        _tuples(told, self, ("settings",), Setting)


@dataclass(frozen=True)
class TokenizerFormat:
    """A kind of tokenizer files: the function at "package.module:attribute" that makes a tokenizer of a folder.

    It serves the folders that hold all of `files` and, where `classes` are given, whose tokenizer_config.json names one
    of them as `tokenizer_class`. It is called `function(folder, settings)`, with the folder's path and its
    `TokenizerSettings`, and gives an object with what `zoo.tokenizer.Backend` lists.
    """

    name: str
    target: str
    files: tuple[str, ...]
    classes: tuple[str, ...] = ()
    summary: str = ""

    def __post_init__(self) -> None:
        told = f"tokenizer {_checked_name('tokenizer', self.name)}"
        _target(told, self.target)
        _tuples(told, self, ("files", "classes"), str)
        if not self.files:
            raise PluginError(f"{told}: files names none that it is read from")


@dataclass(frozen=True)
class QuantizedFormat:
    """How the tensors of one `quant_method` are read: the function at "package.module:attribute".

    It is called `function(tensors, settings, dtype)`, with a `Tensors`, config.json's entry on quantization, and the
    dtype (or None) of what cannot stay packed. It gives a `Tensors` with each matrix under the name of its weight, as a
    `Packed` or an array. `settings_file` holds the settings where config.json has none. A method without a target is
    read by the weight rules of the architectures that have it.
    """

    name: str
    target: str | None
    settings_file: str | None = None
    summary: str = ""

    def __post_init__(self) -> None:
        told = f"quantized format {self.name!r}"
        if not isinstance(self.name, str) or not self.name:
            raise PluginError(f"{told}: its name is the quant_method that config.json has")
        if self.target is not None:
            _target(told, self.target)


@dataclass(frozen=True)
class Command:
    """A subcommand of `zoo`: a click command at "package.module:attribute", imported only when called."""

    name: str
    target: str
    summary: str = ""

    def __post_init__(self) -> None:
        _target(f"command {_checked_name('command', self.name)}", self.target)


def _checked_name(what: str, name: Any, pattern: re.Pattern[str] = NAME) -> str:
    """The name of a record; PluginError for one that the command line could not tell from something else."""
    if not isinstance(name, str) or not pattern.fullmatch(name):
        raise PluginError(f"{what} {name!r}: a name is letters, digits, '-' and '.', a letter or digit first")
    return name


def _tuples(told: str, record: Any, fields: tuple[str, ...], kind: type) -> None:
    for name in fields:
        value = getattr(record, name)
        # None is the default of what need not be there.
        if value is not None and not (isinstance(value, tuple) and all(isinstance(v, kind) for v in value)):
            wanted = "text" if kind is str else kind.__name__
            raise PluginError(f"{told}: {name} is a tuple of {wanted}, not {reprlib.repr(value)}")


def _target(told: str, target: Any) -> None:
    if not isinstance(target, str) or not TARGET.fullmatch(target):
        raise PluginError(f'{told}: expected "package.module:attribute", got {target!r}')


def import_target(target: str) -> Any:
    """What "package.module:attribute" names; PluginError when it cannot be imported."""
    package, _, attribute = target.partition(":")
    try:
        return getattr(import_module(package), attribute)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plugin's module may raise anything, or exit
        raise PluginError(f"cannot import {target}: {in_words(error)}") from error


def pocket(plugin_file: str, name: str, **config: Any) -> Preset:
    """The embedded checkpoint in the plugin's own folder `pockets/NAME`; pass the plugin's `__file__`.

    `config` holds the numbers it is trained with, from nothing, by `zoo train`.
    """
    folder = Path(plugin_file).parent / "pockets" / name
    return Preset("pocket", summary="trained on the atlas corpus, embedded", folder=folder, config=config)
