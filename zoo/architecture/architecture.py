"""The base class of the records that plugins yield, and the records of a model family. Imports no mlx."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pluggy

from zoo.architecture.setting import Setting
from zoo.config import Config
from zoo.errors import PluginError, RecipeError, contained, did_you_mean, in_words
from zoo.frozen import Frozen, frozen
from zoo.gguf import GGUF
from zoo.recipe import Spec
from zoo.recipe.models import CAUSALITIES, Decoder, two_sided
from zoo.recipe.spec import KINDS, undeclared_fields
from zoo.weights import Rule

TASKS = ("generate", "translate", "encode", "fill-mask", "classify", "denoise")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")
TARGET = re.compile(r"[\w.]+:\w+")
MONTH = re.compile(r"[12]\d{3}-(0[1-9]|1[0-2])")


def checked_name(what: str, name: object, pattern: re.Pattern[str] = NAME) -> str:
    """The name of a record; PluginError unless it is one that the command line can take as a name."""
    if not isinstance(name, str) or not pattern.fullmatch(name):
        raise PluginError(f"{what} {name!r}: a name is letters, digits, '-' and '.', a letter or digit first")
    return name


def check_types(label: str, record: Any) -> None:
    """Raise PluginError for a field of a dataclass that is no flag or tuple as declared; `label` names the record."""
    for name, field in record.__dataclass_fields__.items():
        value, kinds = getattr(record, name), TUPLES.get(str(field.type).removesuffix(" | None"), ())
        if field.type == "bool" and not isinstance(value, bool):
            raise PluginError(f"{label}: {name} is True or False, not {value!r:.60}")
        # None is the default of a field that may be left out.
        fits = value is None or (isinstance(value, tuple) and all(isinstance(v, kinds) for v in value))
        if kinds and not fits:
            wanted = " or ".join("text" if kind is str else kind.__name__ for kind in kinds)
            raise PluginError(f"{label}: {name} is a tuple of {wanted}, not {reprlib.repr(value)}")


def check_tasks(label: str, tasks: Iterable[str], known: Iterable[str]) -> None:
    """Raise PluginError for a task that is neither the zoo's nor among `known`, the plugin's own."""
    if unknown := set(tasks) - set(known) - set(TASKS):
        raise PluginError(
            f"{label}: task {min(unknown)!r} is not one of {', '.join(TASKS)}, "
            "nor one that the plugin has both an architecture and a strategy for"
        )


def check_target(label: str, target: object) -> None:
    """Raise PluginError for a target that is not written "package.module:attribute"."""
    if not isinstance(target, str) or not TARGET.fullmatch(target):
        raise PluginError(f'{label}: expected "package.module:attribute", got {target!r}')


def import_target(target: str) -> Any:
    """The object that "package.module:attribute" names; PluginError when it cannot be imported."""
    package, _, attribute = target.partition(":")
    try:
        with contained():
            return getattr(import_module(package), attribute)
    except Exception as error:
        raise PluginError(f"cannot import {target}: {in_words(error)}") from error


@frozen()
class Record(Frozen):
    """One item that a hook yields, validated when it is made. A record claims a name, its `identifier`.

    `noun` names the kind in messages; `prefix` stands before the name in a list of records of all kinds. `by_name`: a user
    selects a record by its name, and `choose` is the verb for this in messages; other records are found from a checkpoint
    or a recipe. `counted`: a list shows only how many a plugin has, since they are many.
    """

    noun, prefix = "record", ""
    by_name, choose = True, "ask for"
    counted = False

    @property
    def identifier(self) -> str:
        """The name that the record claims."""
        return self.name  # type: ignore[attr-defined, no-any-return]

    def load(self) -> Any:
        """The object at the record's `target`, imported now."""
        return import_target(self.target)  # type: ignore[attr-defined]

    @property
    def label(self) -> str:
        """What messages call this record: "corpus atlas"."""
        return f"{self.noun} {self.identifier}"


@frozen()
class TargetRecord(Record):
    """A record with a name, and a `target` at "package.module:attribute", imported only when it is used."""

    name: str
    target: str

    def __post_init__(self) -> None:
        checked_name(self.noun, self.name)
        check_target(self.label, self.target)
        check_types(self.label, self)


API = 1  # the version of the plugin contract that this zoo has

BRIDGED = re.compile(rf"{NAME.pattern}(?:::\w[\w.-]*)?")
ALIAS = re.compile(rf"{NAME.pattern}(?::{NAME.pattern})?")

hookimpl = pluggy.HookimplMarker("zoo")


@frozen()
class Preset(Frozen):
    """A named checkpoint: `folder` when it is embedded, `hub` ("org/name") when it is published.

    `config` holds the numbers of its config.json, so that it can be counted, drawn and compared without a download.
    `licence` and `download`, the bytes of the weights, are those of the published files, where they are known. `aliases`
    are names that find it without its architecture's: "smollm2", "smollm2:135m".
    """

    name: str
    summary: str = ""
    folder: Path | None = None
    hub: str | None = None
    config: Mapping[str, Any] | None = None
    licence: str | None = None
    download: int | None = None
    aliases: tuple[str, ...] = ()

    @property
    def embedded(self) -> bool:
        """Whether its folder is part of this installation."""
        return self.folder is not None and self.folder.is_dir()


@frozen()
class Architecture(Record):
    """One architecture: how its config becomes a recipe, how its weights are named, and what it is for.

    `recipe` turns a `Config` into a recipe. `weights` are the rules from Hugging Face tensor names to parameter paths;
    `mlx_weights` those of the layout that MLX conversions publish, where it differs; `gguf` has the rules for GGUF files,
    if the zoo reads those. `model_types` are the values of a checkpoint's `model_type` that mean this architecture. `presets` are its named checkpoints: "tiny" or "pocket"
    has numbers small enough for tests, and "pocket" those that `zoo train` starts from.

    `text_of` are the `model_type`s of checkpoints that take images or sound too and whose `text_config` this architecture
    reads; the other parts are left out. mlx-lm reads the config as the `text_config` of the `model_type` `mlx_type`, and the
    tensors behind "language_model.", where that is given; its own `model_type` there: the config as it is, with `rope_parameters`.

    `task` is what it does: "generate", "translate", "encode", "fill-mask", "classify" or "denoise" (masked diffusion), or one
    that a strategy of the same plugin serves, such as "summarise".
    `causality` says what a token attends to: "causal", itself and earlier tokens; "prefix", also the whole prompt; "full",
    every token. `base` is the architecture that this one is described as a variant of. `references` say where it was
    published, and `published` is the month of the first of them, "2017-06". `quantizes(path, quantization)` may give another `zoo.checkpoint.quantized_matrix.QuantizationSpec` for the layer at a path, or
    None to keep it whole. `api` is the version of this contract that the plugin was written for.

    `prediction` is the multi-token prediction layer that a checkpoint may hold beside the model: an architecture of its
    own, read from the same files by its own rules when it is asked to draft. Its module is called
    `layer(vectors, hidden, caches)` with the embeddings of tokens and the last hidden states that predicted these tokens,
    (B, T, D) each. It returns states (B, T, D); its `norm` and the model's head turn these into logits. `make_cache()` is
    as a decoder's.

    The name "library::name" marks an architecture that another library's code runs. It is listed separately, and is used
    for a config only if its plugin's `zoo_resolve` returns it and no other architecture has the `model_type`.
    """

    noun, prefix = "architecture", ""

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
    published: str = ""
    api: int = API
    prediction: Architecture | None = None
    text_of: tuple[str, ...] = ()
    mlx_type: str | None = None

    def __post_init__(self) -> None:
        label = f"architecture {checked_name(self.noun, self.name, BRIDGED)}"
        checked_name(f"{label}: task", self.task)
        if self.causality not in CAUSALITIES:
            raise PluginError(f"{label}: causality {self.causality!r} is not one of {', '.join(CAUSALITIES)}")
        if not callable(self.recipe):
            raise PluginError(f"{label}: recipe is a function from a config, not {self.recipe!r}")
        check_types(label, self)
        for preset in self.presets:
            check_types(f"{label}: preset {preset.name}", preset)
            for alias in preset.aliases:
                checked_name(f"{label}: alias", alias, ALIAS)
        if not (isinstance(self.published, str) and (not self.published or MONTH.fullmatch(self.published))):
            raise PluginError(f'{label}: published is a month such as "2017-06", not {self.published!r:.60}')
        if not (self.quantizes is None or callable(self.quantizes)):
            raise PluginError(
                f"{label}: quantizes is a function of a path and a quantization, not {self.quantizes!r}"
            )
        if not isinstance(self.prediction, Architecture | None):
            raise PluginError(f"{label}: prediction is an Architecture, not {self.prediction!r}")
        if not isinstance(self.api, int):
            raise PluginError(f"{label}: api is a whole number, not {self.api!r}")

    def recipe_of(self, config: Config) -> Any:
        """The recipe of a config; PluginError, with the function's name, where `recipe` returns none.

        Keys that transformers reads for every family are followed or refused here.
        """
        recipe = self.recipe(config)
        # The first gives layers settings of their own, the second removes the causal mask.
        for key in ("per_layer_config", "use_bidirectional_attention"):
            if not config.was_read(key):
                config.refuse(key)
        if not isinstance(recipe, Spec):
            function = getattr(self.recipe, "__qualname__", type(self.recipe).__name__)
            hint = ": does it lack a `return`?" if recipe is None else ""
            raise PluginError(
                f"architecture {self.name}: its recipe function {function} returned "
                f"{type(recipe).__name__}, not a recipe{hint}"
            )
        return _with_causality(recipe, config)

    def with_causality(self, config: Mapping[str, Any]) -> Architecture:
        """The architecture of a checkpoint with this config: of a decoder without causal attention, one that encodes."""
        both_ways = config.get("is_causal") is False or config.get("use_bidirectional_attention") is True
        encodes = both_ways and self.task == "generate"
        return replace(self, task="encode", causality="full") if encodes else self

    @property
    def bridged(self) -> bool:
        """Whether another library's code runs it."""
        return "::" in self.name

    @property
    def layouts(self) -> dict[str, tuple[Rule, ...]]:
        """The weight rules of each published layout, "hf" and "mlx"."""
        return {"hf": self.weights, "mlx": self.mlx_weights or self.weights}

    def layouts_of(self, format: str | None) -> dict[str, tuple[Rule, ...]]:
        """The possible layouts of a checkpoint whose metadata has this `format`."""
        if format == "gguf":
            return {"gguf": self.gguf.weights if self.gguf else ()}
        return self.layouts

    def preset(self, name: str | None = None) -> Preset | None:
        """The preset of that name, whatever its case; without one, the embedded pocket checkpoint, else the first."""
        if name is None:
            return next((p for p in self.presets if p.embedded), next(iter(self.presets), None))
        named = [p for p in self.presets if p.name.lower() == name.lower()]
        return next((p for p in named if p.name == name), named[0] if named else None)

    @property
    def full_size(self) -> Preset | None:
        """The first preset that has the numbers of a published model."""
        return next((p for p in self.presets if p.config and not p.folder), None)

    @property
    def aliases(self) -> tuple[Alias, ...]:
        """The aliases of all its presets."""
        return tuple(Alias(name, self, preset) for preset in self.presets for name in preset.aliases)


# The declared types of tuples in records, with the kinds of their values.
TUPLES: dict[str, tuple[type, ...]] = {
    "tuple[str, ...]": (str,),
    "tuple[tuple[str, ...], ...]": (tuple,),
    "tuple[Setting, ...]": (Setting,),
    "tuple[str | Setting, ...]": (str, Setting),
    "tuple[Rule, ...]": (Rule,),
    "tuple[Preset, ...]": (Preset,),
}


def is_same(given: Record, record: Record | None) -> bool:
    """True if `record` is the `given` record, or a copy of the given architecture that `with_causality` made."""
    if not (isinstance(given, Architecture) and isinstance(record, Architecture)):
        return given is record
    return given.name == record.name and given.recipe is record.recipe and given.weights is record.weights


def _with_causality(recipe: Spec, config: Config) -> Spec:
    """The recipe with attention as `is_causal` says; ConfigError where its layers cannot attend both ways."""
    if "is_causal" not in config or config.flag("is_causal") or getattr(recipe, "causality", "") == "full":
        return recipe
    if not isinstance(recipe, Decoder):
        raise config.error("is_causal", f"is not implemented for a {recipe.title}")
    try:
        return two_sided(recipe)
    except RecipeError as error:
        raise config.error("is_causal", f"is not implemented for such layers: {error}") from None


@frozen()
class Alias(Record):
    """A name that finds a preset without the name of its architecture."""

    noun, prefix = "alias", "alias/"

    name: str
    architecture: Architecture
    preset: Preset


@frozen()
class Block(Record):
    """A spec and the module that runs it, as "package.module:Class", imported only when a model is built."""

    noun, prefix = "block", ""

    spec: type[Spec]
    module: str
    summary: str = ""

    def __post_init__(self) -> None:
        if not (
            isinstance(self.spec, type) and issubclass(self.spec, Spec) and self.spec.kind and self.spec.name
        ):
            raise PluginError(
                f"block {self.spec!r}: its spec must be a subclass of Spec with a kind and a name"
            )
        check_target(self.label, self.module)
        kind = self.spec.kind
        if kind not in KINDS:
            hint = did_you_mean(kind.replace("-", "").replace("_", "").lower(), KINDS, alike=0.85)
            if hint:
                raise PluginError(f"{self.label}: kind {kind!r} is none of the zoo's{hint}")
        if missing := undeclared_fields(self.spec):
            raise PluginError(
                f"{self.label}: {', '.join(missing)} of {self.spec.__name__}: no fields without @dataclass(frozen=True) "
                "above the class"
            )

    @property
    def identifier(self) -> str:
        """The block, "kind/name"."""
        return self.spec.block()


def pocket(plugin_file: str, name: str, **config: Any) -> Preset:
    """The embedded checkpoint in the plugin's own folder `pockets/NAME`; pass the plugin's `__file__`.

    `config` holds the numbers it is trained with, from nothing, by `zoo train`.
    """
    folder = Path(plugin_file).parent / "pockets" / name
    return Preset("pocket", summary="trained on the atlas corpus, embedded", folder=folder, config=config)
