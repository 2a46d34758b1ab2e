"""`zoo.load`: from a source to a model that runs."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from zoo import runtime
from zoo.architecture import Architecture
from zoo.blocks.adapted import AdapterChoice
from zoo.blocks.joined import join_projections, make_floats
from zoo.blocks.model import Model
from zoo.blocks.quantized import DequantizableLayer
from zoo.blocks.ranked import connect_ranks
from zoo.checkpoint.digest import digest
from zoo.checkpoint.division import packed_group
from zoo.checkpoint.finite import evaluate
from zoo.checkpoint.open import Opened, OpenOptions, Report, open_model
from zoo.checkpoint.parameters import fill, parameters_of
from zoo.compiled_step import compiled_step
from zoo.errors import CheckpointError, DoesNotFit, SourceError, ZooError, deferred_warnings, warn
from zoo.frozen import frozen
from zoo.host.registry import Registry, default_registry
from zoo.recipe import Model as Recipe
from zoo.recipe.division import Division, Share
from zoo.recipe.pipeline import check_way, division_of
from zoo.runtime import ranks
from zoo.tokenizer import Tokenizer

if TYPE_CHECKING:
    from zoo.describe import Sheet


Agreed = TypeVar("Agreed", bool, int, float)


@dataclass(repr=False)
class Loaded:
    """A model, ready to run. `tokenizer` may be None: prompts are then lists of ids.

    `recipe` describes the whole model. `division` says which part of it this rank has; it is None where the model is not divided.
    `folder` is the folder or file that it was read from, `name` what a person calls it. `registry` has the plugins that serve it. The model takes token
    ids (B, T) and gives logits (B, T, V). `adapters` has the names of those that it shares its weights with, and which of
    them the next pass uses. `drafters` are the models that draft for it, by
    their sources, once drafts by them were asked for.

    >>> loaded = zoo.load("llama")
    >>> tokens = mx.array([loaded.tokenizer.encode("中国的首都是")])  # (B, T)
    >>> loaded.model(tokens).shape  # (B, T, V)
    (1, 6, 2048)
    >>> loaded.facts["cache.token"].value, loaded.facts["cache.token"].unit
    (1024, 'bytes')
    """

    model: Model
    tokenizer: Tokenizer | None
    architecture: Architecture
    recipe: Recipe
    config: dict[str, Any]
    folder: Path
    generation_config: dict[str, Any] = field(default_factory=dict)
    registry: Registry = field(default_factory=default_registry, repr=False)
    adapters: AdapterChoice = field(default_factory=AdapterChoice, repr=False)
    drafters: dict[str, Any] = field(default_factory=dict, repr=False)
    division: Division | None = field(default=None, repr=False)
    name: str = ""

    @property
    def unpacked(self) -> bool:
        """Whether the floats of packed matrices are kept beside them, from when they are first needed."""
        return any(
            layer.keeps_floats for layer in self.model.modules() if isinstance(layer, DequantizableLayer)
        )

    @property
    def facts(self) -> Sheet:
        """What is known of it, as typed values with units: `loaded.facts["parameters.total"].value`."""
        from zoo.describe.facts.sheet import facts_of, tokenizer_facts

        return facts_of(
            self.recipe,
            title=str(self.folder),
            registry=self.registry,
            quantizes=self.architecture.quantizes,
            more=tokenizer_facts(self.tokenizer),
        )

    def agreed(self, value: Agreed) -> Agreed:
        """A value that decides what runs next, such as a measured time: rank 0's, where the ranks share the model."""
        return value if self.division is None else cast(Agreed, ranks.shared(value))

    def __repr__(self) -> str:
        count = self.recipe.parameters(self.recipe.dim)
        return f"<Loaded {self.architecture.name}, {count:,} parameters, from {str(self.folder)!r}>"


@frozen(kw_only=True)
class LoadOptions(OpenOptions):
    """The options of `load`, which describes them. A `ZooError` for one that is invalid."""

    adapter: str | Path | None = None
    adapters: Mapping[str, str | Path] = field(default_factory=dict)
    context: int | None = None
    force: bool = False
    unpack: bool | None = None
    parallel: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.parallel is not None:
            check_way(self.parallel)
        if self.context is not None and (type(self.context) is not int or self.context < 0):
            raise SourceError(f"`context` must be a number of tokens, got {self.context!r:.60}")
        runtime.compute_dtype(self.dtype)  # checks it

    @property
    def floats(self) -> mx.Dtype | None:
        return runtime.compute_dtype(self.dtype)

    @property
    def divides(self) -> bool:
        """Whether ranks share the model."""
        return self.parallel is not None and ranks.size() > 1


@deferred_warnings()
def load(
    source: str | Path,
    *,
    architecture: str | Architecture | None = None,
    dtype: str | None = None,
    adapter: str | Path | None = None,
    adapters: Mapping[str, str | Path] | None = None,
    context: int | None = None,
    force: bool = False,
    revision: str | None = None,
    repack: int | None = None,
    unpack: bool | None = None,
    parallel: str | None = None,
    report: Report | None = None,
    registry: Registry | None = None,
) -> Loaded:
    """Load an architecture's pocket checkpoint ("llama"), a preset ("llama:pocket"), a folder, a GGUF file or a hub id.

    It has many parameters because it is the one public entry point: each is an independent choice of the caller.
    `architecture`, a name or the record itself, overrides what the config says; `dtype` ("float32", "float16",
    "bfloat16") casts floats; `adapter` is a folder of mlx-lm's or PEFT's LoRA or DoRA, `revision` a hub id's branch, tag or commit.
    `adapters` are such folders by name, for a model that each text uses with the one of its setting `adapter`, or with none.
    A model that would not fit in this machine's memory with a cache of `context` tokens is refused before it is read,
    unless `force`. `repack` (4, 6 or 8) packs in so many bits those matrices of a GGUF file that no packing of MLX holds
    exactly. `unpack` keeps the floats of packed matrices beside them, which multiply faster on a CPU; when it is None, where
    they do and take at most half of the memory. `report` is called with the bytes read so far and those in all (0 while
    unknown) once the files are found. Raises a `ZooError` that names the culprit: SourceError, ConfigError, CheckpointError, TokenizerError.

    >>> zoo.load("llama").architecture.name
    'llama'
    >>> zoo.load("lama")
    Traceback (most recent call last):
    zoo.errors.SourceError: 'lama' is no architecture, folder or hub id; did you mean llama or llama4? `zoo list --presets` shows the models, `zoo run mlx-community/NAME` runs one of the hub
    """
    runtime.check_not_forked()
    options = LoadOptions(
        architecture=architecture,
        dtype=dtype,
        adapter=adapter,
        adapters=adapters or {},
        context=context,
        force=force,
        revision=revision,
        repack=repack,
        unpack=unpack,
        parallel=parallel,
        report=report,
        registry=registry or default_registry(),
    )
    opened = open_model(source, options)
    checkpoint, recipe, floats = opened.checkpoint, opened.recipe, options.floats
    if options.divides:
        ranks.check_same({"the checkpoint": digest(checkpoint.path)})
        if adapter is not None or adapters:
            raise SourceError(
                "`adapter`: none is divided among ranks; fuse it first: zoo convert SOURCE OUT --adapter FOLDER"
            )
    if report is not None:
        report(0, 0)
    if not checkpoint.lazy and not force and not options.divides:
        check_memory(checkpoint.held_bytes(floats), recipe, options)
    division = divide(opened, options) if options.divides else None
    opened.read()
    choice = _fill(opened, options)
    model = opened.model
    weights = {id(array): array.nbytes for _, array in tree_flatten(model.parameters())}
    if not force and division is None:  # a part was checked before it was read
        check_memory(sum(weights.values()), recipe, options)
    # Reading and unpacking leave Python's thread idle: the tokenizer is made, and modules are imported, meanwhile.
    with ThreadPoolExecutor(1) as beside:
        tokenizer = beside.submit(copy_context().run, checkpoint.tokenizer)
        beside.submit(lambda: start_rendering(tokenizer.result()))
        beside.submit(import_generation, checkpoint.registry, checkpoint.architecture, sum(weights.values()))
        keep_floats(model, unpack)
        join_projections(model)
        if division is not None:
            connect_ranks(model, division)
        if (broken := evaluate_weights(model, None if division else report)) is not None:
            raise opened.not_finite(broken)
        make_floats(model)
        runtime.set_up_device()
        compiled_step(model)
    return Loaded(
        model=model,
        tokenizer=tokenizer.result(),
        architecture=checkpoint.architecture,
        recipe=recipe,
        config=opened.config,
        folder=checkpoint.path,
        generation_config=checkpoint.generation_config(),
        registry=checkpoint.registry,
        adapters=choice,
        division=division,
        name=checkpoint.name,
    )


def import_generation(registry: Registry, architecture: Architecture, nbytes: int) -> None:
    """Import what will generate, so that the first token does not wait for it. An error is raised where it is used."""
    with suppress(ZooError):
        registry.strategy(architecture.task, {}, architecture=architecture).load()
    runtime.import_operations(nbytes)


def start_rendering(tokenizer: Tokenizer | None) -> None:
    """Start the process that renders the chat template, so that the first prompt does not wait for it."""
    if tokenizer is not None and tokenizer.chat_template:
        from zoo.tokenizer import chat_process

        chat_process.start_rendering(tokenizer.chat_template)


def divide(opened: Opened, options: LoadOptions) -> Division:
    """Leave this rank's part of a model. Raises DoesNotFit where it does not fit, unless `force`."""
    assert options.parallel is not None
    memory = tuple(ranks.gathered(runtime.usable_memory() or 0))
    share = Share(ranks.rank(), ranks.size(), memory=memory if all(memory) else ())
    division = division_of(opened.recipe, options.parallel, share)
    if (group := packed_group(opened.parameters, division)) > 1:
        division = division_of(opened.recipe, options.parallel, replace(share, group=group))
    opened.divide(division, ranks.rank())
    if not options.force:
        held = sum(tensor.nbytes for tensor in opened.parameters.values())
        check_memory(held, division.spec, options)
    return division


def _fill(opened: Opened, options: LoadOptions) -> AdapterChoice:
    """Change the parameters by the adapter if there is one, and give them to the model; `opened` then holds none.

    The layers that the `adapters` change get their forms with each; what is returned chooses among them.
    """
    choice, floats = AdapterChoice(), options.floats
    if options.adapter is None and not options.adapters:
        fill(opened.model, opened.parameters, floats)
    else:
        from zoo.checkpoint.adapter import adapt, fuse_plain, open_adapter, share

        adapter = {} if options.adapter is None else open_adapter(options.adapter, opened)
        changes = fuse_plain(opened.parameters, adapter)
        others = {name: open_adapter(folder, opened) for name, folder in options.adapters.items()}
        fill(opened.model, opened.parameters, floats)
        choice = share(opened.model, others, opened.parameters, floats)
        adapt(opened.model, changes, opened.parameters, floats)
    opened.parameters.clear()  # each is then freed as soon as it is cast
    return choice


def keep_floats(model: nn.Module, asked: bool | None) -> None:
    """Keep the floats of packed layers if asked to, or, when `asked` is None, where they are faster and fit."""
    packed = [layer for layer in model.modules() if isinstance(layer, DequantizableLayer)]
    nbytes = sum(layer.float_bytes for layer in packed)
    keeps = runtime.keeps_floats(nbytes) if asked is None else asked
    for layer in packed:
        layer.keeps_floats = keeps


def check_memory(weights: int, recipe: Recipe, options: LoadOptions) -> None:
    """Raise DoesNotFit where the weights, a cache of `context` tokens and what MLX already holds exceed the memory.

    `weights`: bytes. The message has the sum. A model that fits by less than a tenth is warned of.
    """
    width = options.floats.size if options.floats else 2
    asked = (weights, recipe, width, options.context, runtime.active_memory())
    if (parts := memory_shortage(*asked)) is not None:
        raise DoesNotFit(f"the model does not fit: {parts}; `force` loads it nevertheless")
    if (parts := memory_shortage(*asked, share=MOST_USED)) is not None:
        warn(f"the model hardly fits, and may be slow: {parts}")


def memory_shortage(
    weights: int, recipe: Recipe, width: int, context: int | None = None, held: int = 0, share: float = 1.0
) -> str | None:
    """The sum in words when weights of so many bytes and the cache exceed this share of the memory, None when they fit.

    `width`: bytes of a number in the cache; `held`: bytes that the process has in use already.
    """
    tokens, cache = _cache(recipe, width, context)
    others = {"already in memory": held} if held / GB >= 0.05 else {}  # less is shown as 0.0
    return shortage({"weights": weights, f"cache of {tokens} tokens": cache, **others}, share)


def shortage(parts: Mapping[str, int], share: float = 1.0) -> str | None:
    """The bytes of each part and of the memory in words, where the parts exceed this share of it together; else None."""
    room = runtime.usable_memory()
    if room is None or sum(parts.values()) <= share * room:
        return None
    sizes = {**parts, "usable memory": room}
    return ", ".join(f"{name} {nbytes / GB:.1f} GB" for name, nbytes in sizes.items())


def memory_needed(recipe: Recipe, width: int | None = None) -> int:
    """The bytes of a recipe's weights and of a cache of `CONTEXT` tokens, with numbers of `width` bytes.

    Without `width`, of the dtype that this machine computes in.
    """
    if width is None:
        floats = runtime.compute_dtype()
        width = floats.size if floats else 2
    return int(recipe.parameters(recipe.dim) * width + _cache(recipe, width)[1])


def _cache(recipe: Recipe, width: int, context: int | None = None) -> tuple[int, int]:
    """The tokens that a model is to have room for, and the bytes of their cache with numbers of `width` bytes."""
    tokens = min(context or CONTEXT, recipe.context or CONTEXT)
    return tokens, recipe.kv_cache_size(recipe.dim) * tokens * width


MOST_USED = 0.9  # of the memory; beyond it Metal swaps, or other programs do
CONTEXT = 4096  # tokens, where nothing says how long a text will be
GB = 1e9


def evaluate_weights(model: nn.Module, report: Report | None = None) -> str | None:
    """Evaluate the weights. Returns the path of one that holds NaN or infinity, None where all are finite."""
    try:
        return evaluate(parameters_of(model), report)
    except RuntimeError as error:
        raise CheckpointError(f"the weights cannot be read: {error}") from error
