"""A checkpoint, opened: its architecture, its recipe, and which tensor is which parameter. Nothing is read yet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from zoo.architecture import Architecture
from zoo.assemble import assemble
from zoo.blocks.model import protocol_of
from zoo.checkpoint.finite import finite
from zoo.checkpoint.parameters import match, packings, place, warn_of_unread
from zoo.checkpoint.quantized import Expected, check_method, gather, warn_of_differences, with_settings
from zoo.checkpoint.safetensors import Tensors, load_file, open_tensors, weight_files
from zoo.checkpoint.source import find, read_json
from zoo.config import Config
from zoo.errors import CheckpointError, ConfigError, SourceError
from zoo.host.registry import Registry, default_registry

if TYPE_CHECKING:
    from zoo.checkpoint.gguf.file import GGUFFile

Report = Callable[[int, int], None]  # told what is done, and what there is in all


@dataclass
class Opened:
    """A checkpoint whose tensors are found and named, but not read: `parameters` by path, `model` without them.

    `defaults` are the values that stood in for keys which the config does not have. `file` is the GGUF file that it is,
    if it is one: its parameters have shapes and no numbers until `read` is called.
    """

    model: Any
    parameters: dict[str, Any]
    architecture: Architecture
    recipe: Any
    config: dict[str, Any]
    defaults: dict[str, Any]
    folder: Path
    registry: Registry
    file: GGUFFile | None = None

    def layers(self, dtype: Any) -> Iterator[tuple[dict[str, Any], Callable[[], dict[str, Any]]]]:
        """The parameters in groups that can be read one after the other, and what reads each, floats cast to `dtype`.

        Those of a GGUF file have shapes and no numbers before; of others there is one group, read when it is evaluated.
        """
        if self.file is None:
            yield self.parameters, lambda: self.parameters
            return
        tensors = self.file.tensors
        promised = replace(tensors, arrays=tensors.promised(dtype))
        for names in tensors.layers():
            some = replace(promised, arrays={name: promised.arrays[name] for name in names})
            yield self._placed(some), partial(self._read, dtype, names)

    def _read(self, dtype: Any, names: Collection[str] | None = None) -> dict[str, Any]:
        assert self.file is not None
        return self._placed(self.file.tensors.read(dtype, names))

    def _placed(self, tensors: Tensors) -> dict[str, Any]:
        return place(self.model, self.architecture, self.recipe, tensors)

    def read(self, dtype: Any) -> None:
        """Read a GGUF file, floats cast to `dtype`; the parameters of others are read when they are evaluated."""
        if self.file is not None:
            self.parameters = self._read(dtype)
            self.file.tensors.tell(dtype)


def open_model(
    source: str | Path,
    *,
    architecture: str | Architecture | None = None,
    revision: str | None = None,
    floats: Any = None,
    repack: int | None = None,
    registry: Registry | None = None,
) -> Opened:
    """Find a source, its architecture, its recipe and which tensor is which parameter; nothing is read yet.

    What has to be unpacked becomes `floats`, a dtype, where one is given; `repack` is of a GGUF file alone.
    """
    if not isinstance(source, str | Path) or not source:
        raise SourceError(f"the source must be a name or a path, got {source!r:.60}")
    if not isinstance(architecture, str | Architecture | None):
        raise SourceError(f"architecture must be a name, got {architecture!r:.60}")
    if not isinstance(revision, str | None):
        raise SourceError(f"revision must be a name, got {revision!r:.60}")
    registry = registry or default_registry()
    found = find(source, registry, revision)
    file = open_file(found.folder, registry, architecture, repack) if found.folder.is_file() else None
    if repack is not None and file is None:
        raise SourceError(f"{found.folder}: repack is of GGUF files; `zoo convert --quantize` packs others")
    config = (
        file.config
        if file
        else with_settings(read_json(found.folder / "config.json"), found.folder, registry)
    )
    if architecture is not None:
        chosen = registry.architecture(architecture)
    elif file is not None:
        chosen = file.architecture
    else:
        chosen = found.architecture or registry.resolve(config)
    tensors = file.tensors if file else gather(open_tensors(found.folder), config, floats, registry)
    try:
        recipe, defaults = told_recipe(chosen, config, tensors.arrays, registry)
        check_size(recipe, sum(tensor.nbytes for tensor in tensors.arrays.values()))
    except ConfigError as error:
        raise (file.names(error) if file else error) from None
    model = assemble(recipe, registry)
    tensors = protocol_of(model).sanitize(tensors)  # another library's model has names of its own
    parameters = match(model, chosen, recipe, tensors)
    warn_of_differences(Expected(config), packings(tensors, parameters))
    return Opened(model, parameters, chosen, recipe, config, defaults, found.folder, registry, file)


def open_file(
    path: Path, registry: Registry, architecture: str | Architecture | None, repack: int | None = None
) -> GGUFFile:
    """A GGUF file, whose reader is imported only for one."""
    from zoo.checkpoint.gguf.file import open_gguf

    return open_gguf(path, registry, architecture, repack)


def check_size(recipe: Any, held: int) -> None:
    """ConfigError when the recipe has more parameters than `held` bytes have bits, before anything is made of it."""
    count = recipe.parameters(recipe.dim)
    if count > 8 * held:
        raise ConfigError(
            f"config.json: its sizes make {count:,} parameters, but the weights are {held:,} bytes in all"
        )


def not_finite(opened: Opened, dtype: str | None, name: str) -> CheckpointError:
    """The error for a parameter or tensor that holds NaN or infinity: it names the file and tensor that brought them."""
    file = opened.file.tensors.entries.values() if opened.file is not None else None
    found = stored(opened.folder, file)
    if found is not None:
        return CheckpointError(f"{found[0]}: tensor {found[1]} holds NaN or infinity")
    asked = f", too large for {dtype}?" if dtype else ""
    return CheckpointError(f"{opened.folder}: {name} comes to hold NaN or infinity{asked}")


def make_recipe(
    architecture: Architecture,
    values: Any,
    tensors: Collection[str] | None = None,
    registry: Registry | None = None,
) -> Any:
    """The recipe of a config; warns of keys that the architecture does not know, refuses what it lacks.

    `tensors` are the names of the checkpoint's, when there is one; `registry` has the quantized formats.
    """
    return told_recipe(architecture, values, tensors, registry)[0]


def told_recipe(
    architecture: Architecture,
    values: Any,
    tensors: Collection[str] | None = None,
    registry: Registry | None = None,
) -> tuple[Any, dict[str, Any]]:
    """The same, with the defaults that stood in for keys the config does not have."""
    config = Config(values, tensors=tensors)
    check_method(values, registry or default_registry())
    config.ignore("quantization", "quantization_config")
    recipe = architecture.recipe(config)
    warn_of_unread(config.unread())
    return recipe, config.defaults()


def stored(folder: Path, entries: Iterable[Any] | None = None) -> tuple[Path, str] | None:
    """The file and name of the first tensor of a folder, or of a GGUF file's `entries`, that holds NaN or infinity.

    Each is read anew, one after the other: this is for an error's message.
    """
    if entries is not None:
        from zoo.checkpoint.gguf.tensors import read

        return next(((one.path, one.name) for one in entries if not finite(read(one, mx.float32))), None)
    for path in weight_files(folder):
        arrays = load_file(path).arrays
        for name in list(arrays):
            if not finite(arrays.pop(name)):
                return path, name
    return None
