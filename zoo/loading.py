"""`zoo.load`: from a source to a model that runs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo import runtime
from zoo.architecture import Architecture
from zoo.assemble import assemble
from zoo.checkpoint.quantized import Expected, check_method, gather, warn_of_differences, with_settings
from zoo.checkpoint.safetensors import open_tensors
from zoo.checkpoint.source import find, read_json
from zoo.checkpoint.weights import fill, match, packings, warn_of_unread
from zoo.config import Config
from zoo.errors import CheckpointError, ConfigError, SourceError
from zoo.registry import Registry, registry
from zoo.tokenizer import Tokenizer, load_tokenizer

Report = Callable[[int, int], None]  # told what is done, and what there is in all

if TYPE_CHECKING:
    from zoo.checkpoint.gguf import GGUFFile


@dataclass
class Loaded:
    """A model, ready to run. `tokenizer` is None where there is none: prompts are then lists of ids.

    `folder` is where it was read from: a folder, or a GGUF file. `registry` has the plugins that serve it.
    """

    model: Any
    tokenizer: Tokenizer | None
    architecture: Architecture
    recipe: Any
    config: dict[str, Any]
    folder: Path
    generation_config: dict[str, Any] = field(default_factory=dict)
    registry: Registry = field(default_factory=registry, repr=False)


def load(
    source: str | Path,
    *,
    architecture: str | None = None,
    dtype: str | None = None,
    adapter: str | Path | None = None,
    context: int | None = None,
    force: bool = False,
    revision: str | None = None,
    report: Report | None = None,
    known: Registry | None = None,
) -> Loaded:
    """Load an architecture's pocket checkpoint ("llama"), a preset ("llama:pocket"), a folder, a GGUF file or a hub id.

    `architecture` overrides what the config says; `dtype` ("float32", "float16", "bfloat16") casts floats; `adapter` is
    a folder of mlx-lm's LoRA or DoRA, `revision` a hub id's branch, tag or commit. A model that would not fit in this
    machine's memory with a cache of `context` tokens is refused before it is read, unless `force`. `report` is called
    with the bytes read so far and those in all (0 while nobody knows) once the files are found. Raises a `ZooError` that names the culprit: SourceError, ConfigError, CheckpointError, TokenizerError.
    """
    floats = runtime.compute_dtype(dtype)
    opened = open_model(source, architecture=architecture, revision=revision, floats=floats, known=known)
    model, recipe = opened.model, opened.recipe
    if report is not None:
        report(0, 0)
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
    read(model, report)
    runtime.prepare()
    file, drawing = opened.file, opened.folder / "generation_config.json"
    return Loaded(
        model=model,
        tokenizer=file.tokenizer()
        if file
        else load_tokenizer(opened.folder, opened.config, opened.registry.tokenizers),
        architecture=opened.architecture,
        recipe=recipe,
        config=opened.config,
        folder=opened.folder,
        generation_config=file.generation_config if file else read_json(drawing, required=False) or {},
        registry=opened.registry,
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
    registry: Registry
    file: GGUFFile | None = None

    def read(self, dtype: Any) -> None:
        """Read a GGUF file, floats cast to `dtype`; the parameters of others are read when they are evaluated."""
        if self.file is not None:
            tensors = self.file.tensors.read(dtype)
            self.parameters = match(self.model, self.architecture, self.recipe, tensors)


def open_model(
    source: str | Path,
    *,
    architecture: str | None = None,
    revision: str | None = None,
    floats: Any = None,
    known: Registry | None = None,
) -> Opened:
    """Find a source, its architecture, its recipe and which tensor is which parameter; nothing is read yet.

    What has to be unpacked becomes `floats`, a dtype, where one is given.
    """
    known = known or registry()
    place = find(source, known, revision)
    file = open_file(place.folder, known, architecture) if place.folder.is_file() else None
    config = (
        file.config if file else with_settings(read_json(place.folder / "config.json"), place.folder, known)
    )
    if architecture is not None:
        chosen = known.architecture(architecture)
    elif file is not None:
        chosen = file.architecture
    else:
        chosen = place.architecture or known.resolve(config)
    tensors = file.tensors if file else gather(open_tensors(place.folder), config, floats, known)
    try:
        recipe, defaults = told_recipe(chosen, config, tensors.arrays, known)
        check_size(recipe, sum(tensor.nbytes for tensor in tensors.arrays.values()))
    except ConfigError as error:
        raise (file.names(error) if file else error) from None
    model = assemble(recipe, known)
    if hasattr(model, "adopt"):  # a model that another library made knows names of its own
        tensors = model.adopt(tensors)
    parameters = match(model, chosen, recipe, tensors)
    warn_of_differences(Expected(config), packings(tensors, parameters))
    return Opened(model, parameters, chosen, recipe, config, defaults, place.folder, known, file)


def open_file(path: Path, known: Registry, architecture: str | None) -> GGUFFile:
    """A GGUF file, whose reader is imported only for one."""
    from zoo.checkpoint.gguf import open_gguf

    return open_gguf(path, known, architecture)


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
READ = 2**26  # bytes evaluated at once: enough to be cast side by side, few enough to be held twice
GB = 1e9


def read(model: Any, report: Report | None = None) -> None:
    """Read the weights that `fill` only promised, some at a time: no second copy of all is held, Ctrl-C is heard."""
    import mlx.core as mx
    from mlx.utils import tree_flatten

    arrays = {id(array): array for _, array in tree_flatten(model.parameters())}
    total, seen, done, group = sum(array.nbytes for array in arrays.values()), 0, 0, list[Any]()
    try:
        for array in arrays.values():
            group.append(array)
            seen += array.nbytes
            if seen - done >= READ:
                mx.eval(group)
                group.clear()
                done = seen
                if report is not None:
                    report(done, total)
        mx.eval(group)
    except RuntimeError as error:
        raise CheckpointError(f"the weights cannot be read: {error}") from error


def make_recipe(
    architecture: Architecture,
    values: Any,
    tensors: Collection[str] | None = None,
    known: Registry | None = None,
) -> Any:
    """The recipe of a config; warns of keys that the architecture does not know, refuses what it lacks.

    `tensors` are the names of the checkpoint's, when there is one; `known` has the quantized formats.
    """
    return told_recipe(architecture, values, tensors, known)[0]


def told_recipe(
    architecture: Architecture,
    values: Any,
    tensors: Collection[str] | None = None,
    known: Registry | None = None,
) -> tuple[Any, dict[str, Any]]:
    """The same, with the defaults that stood in for keys the config does not have."""
    config = Config(values, tensors=tensors)
    check_method(values, known or registry())
    for key in ("quantization", "quantization_config"):
        config.get(key)
    recipe = architecture.recipe(config)
    warn_of_unread(config.unread())
    return recipe, config.defaults()
