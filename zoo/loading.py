"""`zoo.load`: from a source to a model that runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo import runtime
from zoo.architecture import Architecture
from zoo.assemble import assemble
from zoo.checkpoint.quantized import Expected, check_method, gather, warn_of_differences, with_settings
from zoo.checkpoint.safetensors import Tensors, open_tensors
from zoo.checkpoint.source import find, read_json
from zoo.checkpoint.weights import fill, match, packings, place, warn_of_unread
from zoo.config import Config
from zoo.errors import CheckpointError, ConfigError, SourceError
from zoo.notices import held
from zoo.registry import Registry, registry
from zoo.tokenizer import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from zoo.checkpoint.gguf import GGUFFile


@dataclass
class Loaded:
    """A model, ready to run. `tokenizer` is None where there is none: prompts are then lists of ids.

    `folder` is where it was read from: a folder, or a GGUF file.
    """

    model: Any
    tokenizer: Tokenizer | None
    architecture: Architecture
    recipe: Any
    config: dict[str, Any]
    folder: Path
    generation_config: dict[str, Any] = field(default_factory=dict)


@held()
def load(
    source: str | Path,
    *,
    architecture: str | None = None,
    dtype: str | None = None,
    adapter: str | Path | None = None,
    context: int | None = None,
    force: bool = False,
    revision: str | None = None,
    repack: int | None = None,
    known: Registry | None = None,
) -> Loaded:
    """Load an architecture's pocket checkpoint ("llama"), a preset ("llama:7b"), a folder, a GGUF file or a hub id.

    `architecture` overrides what the config says; `dtype` ("float32", "float16", "bfloat16") casts floats; `adapter` is
    a folder of mlx-lm's LoRA or DoRA, `revision` a hub id's branch, tag or commit. A model that would not fit in this
    machine's memory with a cache of `context` tokens is refused before it is read, unless `force`. `repack` (4, 6 or 8)
    packs in so many bits those matrices of a GGUF file that no packing of MLX holds exactly. Raises a
    `ZooError` that names the culprit: SourceError, ConfigError, CheckpointError, TokenizerError.
    """
    floats = runtime.compute_dtype(dtype)
    how: dict[str, Any] = dict(architecture=architecture, revision=revision, repack=repack, known=known)
    opened = open_model(source, floats=floats, **how)
    model, recipe = opened.model, opened.recipe
    if opened.file is not None:
        if not force:
            check_sum(opened.file.tensors.held(floats), recipe, floats.size if floats else 2, context)
        opened.read(floats)
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
    file, drawing = opened.file, opened.folder / "generation_config.json"
    return Loaded(
        model=model,
        tokenizer=file.tokenizer() if file else load_tokenizer(opened.folder, opened.config),
        architecture=opened.architecture,
        recipe=recipe,
        config=opened.config,
        folder=opened.folder,
        generation_config=file.generation_config if file else read_json(drawing, required=False) or {},
    )


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
    architecture: str | None = None,
    revision: str | None = None,
    floats: Any = None,
    repack: int | None = None,
    known: Registry | None = None,
) -> Opened:
    """Find a source, its architecture, its recipe and which tensor is which parameter; nothing is read yet.

    What has to be unpacked becomes `floats`, a dtype, where one is given; `repack` is of a GGUF file alone.
    """
    known = known or registry()
    found = find(source, known, revision)
    file = open_file(found.folder, known, architecture, repack) if found.folder.is_file() else None
    if repack is not None and file is None:
        raise SourceError(f"{found.folder}: repack is of GGUF files; `zoo convert --quantize` packs others")
    config = file.config if file else with_settings(read_json(found.folder / "config.json"), found.folder)
    if architecture is not None:
        chosen = known.architecture(architecture)
    elif file is not None:
        chosen = file.architecture
    else:
        chosen = found.architecture or known.resolve(config)
    tensors = file.tensors if file else gather(open_tensors(found.folder), config, floats)
    try:
        recipe, defaults = told_recipe(chosen, config, tensors.arrays)
        check_size(recipe, sum(tensor.nbytes for tensor in tensors.arrays.values()))
    except ConfigError as error:
        raise (file.names(error) if file else error) from None
    model = assemble(recipe, known)
    if hasattr(model, "adopt"):  # a model that another library made knows names of its own
        tensors = model.adopt(tensors)
    parameters = match(model, chosen, recipe, tensors)
    warn_of_differences(Expected(config), packings(tensors, parameters))
    return Opened(model, parameters, chosen, recipe, config, defaults, found.folder, file)


def open_file(path: Path, known: Registry, architecture: str | None, repack: int | None = None) -> GGUFFile:
    """A GGUF file, whose reader is imported only for one."""
    from zoo.checkpoint.gguf import open_gguf

    return open_gguf(path, known, architecture, repack)


def check_size(recipe: Any, held: int) -> None:
    """ConfigError when the recipe has more parameters than `held` bytes have bits, before anything is made of it."""
    count = recipe.parameters(recipe.dim)
    if count > 8 * held:
        raise ConfigError(
            f"config.json: its sizes make {count:,} parameters, but the weights are {held:,} bytes in all"
        )


def check_fit(model: Any, recipe: Any, width: int, context: int | None = None) -> None:
    """SourceError with the sum when weights and a cache of `context` tokens are more than the machine's memory.

    `width`: bytes of a number in the cache.
    """
    from mlx.utils import tree_flatten

    weights = {id(array): array.nbytes for _, array in tree_flatten(model.parameters())}
    check_sum(sum(weights.values()), recipe, width, context)


def check_sum(held: int, recipe: Any, width: int, context: int | None = None) -> None:
    """The same, for weights of `held` bytes."""
    room = runtime.total_memory()
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
