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
from zoo.checkpoint.parameters import fill, match, packings, parameters_of, place, warn_of_unread
from zoo.checkpoint.quantized import Expected, check_method, gather, warn_of_differences, with_settings
from zoo.checkpoint.safetensors import Tensors, open_tensors
from zoo.checkpoint.source import find, read_json
from zoo.config import Config
from zoo.errors import CheckpointError, ConfigError, SourceError
from zoo.host.registry import Registry, registry
from zoo.notices import held
from zoo.tokenizer import Tokenizer, load_tokenizer

Report = Callable[[int, int], None]  # told what is done, and what there is in all

if TYPE_CHECKING:
    from zoo.checkpoint.gguf.file import GGUFFile


@dataclass(repr=False)
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

    def __repr__(self) -> str:
        count = self.recipe.parameters(self.recipe.dim) if self.recipe is not None else 0
        return f"<Loaded {self.architecture.name}, {count:,} parameters, from {str(self.folder)!r}>"


@held()
def load(
    source: str | Path,
    *,
    architecture: str | Architecture | None = None,
    dtype: str | None = None,
    adapter: str | Path | None = None,
    context: int | None = None,
    force: bool = False,
    revision: str | None = None,
    repack: int | None = None,
    report: Report | None = None,
    known: Registry | None = None,
) -> Loaded:
    """Load an architecture's pocket checkpoint ("llama"), a preset ("llama:pocket"), a folder, a GGUF file or a hub id.

    `architecture`, a name or the record itself, overrides what the config says; `dtype` ("float32", "float16",
    "bfloat16") casts floats; `adapter` is a folder of mlx-lm's LoRA or DoRA, `revision` a hub id's branch, tag or commit.
    A model that would not fit in this machine's memory with a cache of `context` tokens is refused before it is read,
    unless `force`. `repack` (4, 6 or 8) packs in so many bits those matrices of a GGUF file that no packing of MLX holds
    exactly. `report` is called with the bytes read so far and those in all (0 while nobody knows) once the files are
    found. Raises a `ZooError` that names the culprit: SourceError, ConfigError, CheckpointError, TokenizerError.
    """
    runtime.check_process()
    if context is not None and (type(context) is not int or context < 0):
        raise SourceError(f"context must be a number of tokens, got {context!r:.60}")
    floats = runtime.compute_dtype(dtype)
    how: dict[str, Any] = dict(architecture=architecture, revision=revision, repack=repack, known=known)
    opened = open_model(source, floats=floats, **how)
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
    broken = read(model, report)
    if broken is not None:
        raise not_finite(opened, dtype, broken)
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
    known: Registry | None = None,
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
    known = known or registry()
    found = find(source, known, revision)
    file = open_file(found.folder, known, architecture, repack) if found.folder.is_file() else None
    if repack is not None and file is None:
        raise SourceError(f"{found.folder}: repack is of GGUF files; `zoo convert --quantize` packs others")
    config = (
        file.config if file else with_settings(read_json(found.folder / "config.json"), found.folder, known)
    )
    if architecture is not None:
        chosen = known.architecture(architecture)
    elif file is not None:
        chosen = file.architecture
    else:
        chosen = found.architecture or known.resolve(config)
    tensors = file.tensors if file else gather(open_tensors(found.folder), config, floats, known)
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
    return Opened(model, parameters, chosen, recipe, config, defaults, found.folder, known, file)


def open_file(
    path: Path, known: Registry, architecture: str | Architecture | None, repack: int | None = None
) -> GGUFFile:
    """A GGUF file, whose reader is imported only for one."""
    from zoo.checkpoint.gguf.file import open_gguf

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
READ = 2**26  # bytes evaluated at once: enough to be cast side by side, few enough to be held twice
GB = 1e9


def read(model: Any, report: Report | None = None) -> str | None:
    """Read the weights that `fill` only promised, some at a time: no second copy of all is held, Ctrl-C is heard.

    Gives the path of one that holds NaN or infinity, if there is one.
    """
    from zoo.checkpoint.finite import evaluate

    tensors = parameters_of(model)
    total, seen, done, group = sum(tensor.nbytes for tensor in tensors.values()), 0, 0, dict[str, Any]()
    broken = None
    try:
        for path, tensor in tensors.items():
            group[path] = tensor
            seen += tensor.nbytes
            if seen - done >= READ:
                broken, done = broken or evaluate(group), seen
                group.clear()
                if report is not None:
                    report(done, total)
        broken = broken or evaluate(group)
    except RuntimeError as error:
        raise CheckpointError(f"the weights cannot be read: {error}") from error
    return broken


def not_finite(opened: Opened, dtype: str | None, name: str) -> CheckpointError:
    """The error for a parameter or tensor that holds NaN or infinity: it names the file and tensor that brought them."""
    from zoo.checkpoint.finite import stored

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
    config.ignore("quantization", "quantization_config")
    recipe = architecture.recipe(config)
    warn_of_unread(config.unread())
    return recipe, config.defaults()
