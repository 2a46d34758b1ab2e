"""The records that describe a model family: `Architecture`, its presets and its blocks. Imports no mlx."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pluggy

from zoo.architecture.base_record import NAME, Record, check_target, check_tuples, checked_name
from zoo.config import Config
from zoo.errors import PluginError
from zoo.frozen import Frozen, frozen
from zoo.gguf import GGUF
from zoo.recipe import Spec
from zoo.recipe.models import CAUSALITIES
from zoo.recipe.spec import KINDS, undeclared_fields
from zoo.weights import Rule

API = 1  # the version of the plugin contract that this zoo has

BRIDGED = re.compile(rf"{NAME.pattern}(?:::\w[\w.-]*)?")

hookimpl = pluggy.HookimplMarker("zoo")


@frozen()
class Preset(Frozen):
    """A named checkpoint: `folder` when it is embedded, `hub` ("org/name") when it is published.

    `config` holds the numbers of its config.json, so that it can be counted, drawn and compared unfetched. `licence` is
    that of the published weights, where it is known.
    """

    name: str
    summary: str = ""
    folder: Path | None = None
    hub: str | None = None
    config: Mapping[str, Any] | None = None
    licence: str | None = None

    @property
    def embedded(self) -> bool:
        """Whether its folder is part of this installation."""
        return self.folder is not None and self.folder.is_dir()


@frozen()
class Architecture(Record):
    """One architecture: how its config becomes a recipe, how its weights are named, and what it is for.

    `recipe` turns a `Config` into a recipe. `weights` are the rules from Hugging Face tensor names to parameter paths;
    `mlx_weights` those of the layout that MLX conversions publish, where it differs; `gguf` says how GGUF files
    hold it, if the zoo reads those. `model_types` are the values of
    a checkpoint's `model_type` that mean this architecture. `presets` are its named checkpoints: "tiny" or "pocket"
    has numbers small enough for tests, and "pocket" those that `zoo train` starts from.

    `task` is what it does: "generate", "translate", "encode", "fill-mask" or "denoise" (text by uncovering masks), or one
    that a strategy of the same plugin serves, such as "classify".
    `causality` is what a token sees: "causal", what came before it; "prefix", all of the prompt besides; "full",
    everything. `base` is the architecture that this one is described as a variant of. `references` say where it was
    published. `quantizes(path, quantization)` may give another `zoo.checkpoint.quantized_matrix.QuantizationSpec` for the layer at a path, or
    None to keep it whole. `api` is the version of this contract that the plugin was written for.

    `prediction` is the layer that a checkpoint may hold beside the model to predict the token after the next: an
    architecture by itself, read from the same files by its own rules when drafts by it are asked for. Its module is
    called `layer(vectors, hidden, caches)`, the vectors of tokens and the last hidden states that predicted these,
    (B, T, D) each, and gives states (B, T, D) of which its `norm` and the model's head make logits; `make_cache()` is
    as a decoder's.

    A name "library::name" is of an architecture that another library's code runs: it is listed apart, and serves a
    config when its plugin's `zoo_resolve` says so and no other architecture has the `model_type`.
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
    api: int = API
    prediction: Architecture | None = None

    def __post_init__(self) -> None:
        label = f"architecture {checked_name(self.noun, self.name, BRIDGED)}"
        checked_name(f"{label}: task", self.task)
        if self.causality not in CAUSALITIES:
            raise PluginError(f"{label}: causality {self.causality!r} is not one of {', '.join(CAUSALITIES)}")
        if not callable(self.recipe):
            raise PluginError(f"{label}: recipe is a function from a config, not {self.recipe!r}")
        check_tuples(label, self, ("weights", "mlx_weights"), Rule)
        check_tuples(label, self, ("presets",), Preset)
        check_tuples(label, self, ("model_types", "references"), str)
        if not (self.quantizes is None or callable(self.quantizes)):
            raise PluginError(
                f"{label}: quantizes is a function of a path and a quantization, not {self.quantizes!r}"
            )
        if not isinstance(self.prediction, Architecture | None):
            raise PluginError(f"{label}: prediction is an Architecture, not {self.prediction!r}")
        if not isinstance(self.api, int):
            raise PluginError(f"{label}: api is a whole number, not {self.api!r}")

    def recipe_of(self, config: Config) -> Any:
        """The recipe of a config; PluginError, with the function's name, where `recipe` returns none."""
        found = self.recipe(config)
        if not isinstance(found, Spec):
            function = getattr(self.recipe, "__qualname__", type(self.recipe).__name__)
            hint = ": has it no `return`?" if found is None else ""
            raise PluginError(
                f"architecture {self.name}: its recipe function {function} returned "
                f"{type(found).__name__}, not a recipe{hint}"
            )
        return found

    @property
    def bridged(self) -> bool:
        """Whether another library's code runs it."""
        return "::" in self.name

    @property
    def layouts(self) -> dict[str, tuple[Rule, ...]]:
        """The weight rules of each published layout, "hf" and "mlx"."""
        return {"hf": self.weights, "mlx": self.mlx_weights or self.weights}

    def layouts_of(self, format: str | None) -> dict[str, tuple[Rule, ...]]:
        """The layouts that a checkpoint may have whose metadata has this `format`."""
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
        """The first preset that has the numbers of a published model."""
        return next((p for p in self.presets if p.config and not p.folder), None)


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
        near = get_close_matches(kind.replace("-", "").replace("_", "").lower(), KINDS, 1, 0.85)
        if kind not in KINDS and near:
            raise PluginError(f"{self.label}: kind {kind!r} is none of the zoo's; did you mean {near[0]!r}?")
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
