"""A checkpoint behind one interface, whatever kind of file or folder it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import mlx.core as mx

from zoo.architecture import Architecture, CheckpointFormat
from zoo.checkpoint.finite import finite
from zoo.checkpoint.safetensors import Tensors
from zoo.checkpoint.source import detect_format
from zoo.config import CONFIG_JSON, Config, Origin
from zoo.errors import PluginError, SourceError
from zoo.frozen import Frozen, frozen
from zoo.host.registry import Registry
from zoo.host.resolve import resolve
from zoo.tokenizer import Tokenizer

POOLINGS = ("mean", "first", "last", "max", "weighted-mean", "mean-sqrt-length")


@frozen()
class Pooling(Frozen):
    """How a text's hidden states become one vector.

    `mode` is one of POOLINGS, or several joined by "+", whose vectors are put one after the other. `modules` then change
    the vectors (N, D) in their order, `normalise` scales them to length 1, and `width` keeps their first numbers.
    `prompts` by name may stand before a text, the one named `prompt_name` does so by default; `include_prompt` False
    leaves its tokens out of the pooling. Texts are cut to `length` tokens (None: never), and `lower_case` before.
    """

    mode: str = "mean"
    normalise: bool = False
    length: int | None = None
    lower_case: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    prompt_name: str | None = None
    include_prompt: bool = True
    modules: tuple[Callable[[mx.array], mx.array], ...] = ()
    width: int | None = None


class Checkpoint(ABC):
    """A checkpoint that a model is loaded from. Opening one reads no weights.

    `path` is its file or folder, `registry` has the plugins that serve it, and `architecture`, where given, is used
    instead of the one that the checkpoint names. A subclass has `config` and `tensors`, and overrides what else its
    files hold. Errors are a `ZooError` that names the file and the key or tensor.

    `lazy` declares that the arrays of `tensors` are read when they are evaluated. Where it is False they are
    placeholders, and `read` gives the numbers, of all tensors or of one of `groups`.
    """

    lazy: ClassVar[bool] = True

    def __init__(self, path: Path, *, registry: Registry, architecture: Architecture | None = None) -> None:
        self.path = path
        self.registry = registry
        self._architecture = architecture

    @property
    def name(self) -> str:
        """The name to show: the hub id of a downloaded model, else the name of the file or folder."""
        *_, repository, snapshots, _ = ("", "", *self.path.parts)
        if snapshots == "snapshots" and repository.startswith("models--"):
            return repository.removeprefix("models--").replace("--", "/")
        return self.path.name

    @property
    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The values of its config.json, or what amounts to one."""

    @abstractmethod
    def tensors(self, dtype: mx.Dtype | None = None) -> Tensors:
        """The tensors by name, unread; what has to be unpacked becomes `dtype`, if given.

        The metadata's "format" chooses the weight rules: "pt", "mlx" or "gguf"; without one both "pt" and "mlx" are
        tried.
        """

    @cached_property
    def architecture(self) -> Architecture:
        """The architecture asked for, else the one that the config is of."""
        found = self._architecture or resolve(self.registry, self.config, self.origin)
        return found.with_causality(self.config)

    @property
    def origin(self) -> Origin:
        """The names that messages use for the config's file and keys."""
        return CONFIG_JSON

    def config_of(self, tensors: Collection[str] | None = None) -> Config:
        """The config as a recipe reads it; `tensors` are those of the checkpoint, where they are known."""
        return Config(self.config, tensors=tensors, origin=self.origin)

    def groups(self) -> list[list[str]]:
        """The names of the tensors that are read together, a layer's for instance; all of them in one group."""
        return [list(self.tensors().arrays)]

    def read(self, dtype: mx.Dtype | None, names: Collection[str] | None = None) -> Tensors:
        """The tensors themselves, or those of some `names`, floats cast to `dtype`."""
        found = self.tensors(dtype)
        arrays = {name: a for name, a in found.arrays.items() if names is None or name in names}
        return replace(found, arrays={name: _cast(array, dtype) for name, array in arrays.items()})

    def held_bytes(self, dtype: mx.Dtype | None) -> int:
        """The bytes of what `read` gives."""
        return sum(_cast(array, dtype).nbytes for array in self.tensors(dtype).arrays.values())

    def warn_of_losses(self, dtype: mx.Dtype | None) -> None:  # noqa: B027 (most lose nothing)
        """Warn of what reading changed of the numbers, after `read`."""

    def weight_files(self) -> list[Path]:
        """The files that hold the tensors."""
        return [self.path]

    def find_not_finite(self) -> tuple[Path, str] | None:
        """The file and name of the first tensor that holds NaN or infinity, for a message: each is read again."""
        tensors = self.read(mx.float32).arrays
        return next(((self.path, name) for name in list(tensors) if not finite(tensors.pop(name))), None)

    def tokenizer(self) -> Tokenizer | None:
        """Its tokenizer, None where it has none."""
        return None

    def generation_config(self) -> dict[str, Any]:
        """Its recommended generation settings, as a generation_config.json has them."""
        return {}

    def pooling(self) -> Pooling:
        """The pooling of hidden states to one vector a text."""
        return Pooling()

    def save_auxiliary_files(self, folder: Path) -> None:  # noqa: B027 (some have none)
        """Write its tokenizer, generation and pooling settings into a new folder, as the files that folders have."""


def _cast(array: Any, dtype: mx.Dtype | None) -> Any:
    """The array, unevaluated, in `dtype` if it holds floats."""
    return array if dtype is None or not mx.issubdtype(array.dtype, mx.floating) else array.astype(dtype)


def open_checkpoint(
    path: Path, registry: Registry, architecture: Architecture | None = None, **options: Any
) -> Checkpoint:
    """Open a file or folder as the kind of checkpoint it is; options left None are not passed on.

    SourceError for a file that no format reads, or an option that its format does not take.
    """
    path, format = detect_format(path, registry)
    given = {name: value for name, value in options.items() if value is not None}
    formats = registry.table(CheckpointFormat).listed().values()
    for name in given.keys() - set(format.options):
        takers = " and ".join(other.name.upper() for other in formats if name in other.options)
        raise SourceError(f"{path}: `{name}` is of {takers} files; `zoo convert --quantize` packs others")
    found = format.load()(path, registry=registry, architecture=architecture, **given)
    if not isinstance(found, Checkpoint):
        raise PluginError(f"{format.target} gave {type(found).__name__}, not a Checkpoint")
    return found
