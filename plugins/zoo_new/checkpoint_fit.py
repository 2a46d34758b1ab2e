"""Measures how well an architecture fits a checkpoint: parameters without tensors, tensors without parameters.

For tensors that a family's rules do not take, weight rules are guessed by their names and shapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from zoo import weights
from zoo.architecture import Architecture
from zoo.assemble import assemble
from zoo.checkpoint.folder import CONFIG
from zoo.checkpoint.quantized_matrix import join
from zoo.checkpoint.safetensors import Tensors, open_tensors
from zoo.config import Config
from zoo.errors import ConfigError, RecipeError, ZooError
from zoo.files.reading import read_object
from zoo.host.registry import Registry
from zoo.weights import Ignore, Rename, Rule, Split, Stack
from zoo_new.parts import ScaffoldError

Shape = tuple[int, ...]
BUFFERS = ("inv_freq", "position_ids", "masked_bias", "num_batches_tracked")  # computed, never trained
MOST = 10**12  # parameters of a recipe that is still assembled, unevaluated


@dataclass(frozen=True)
class SourceCheckpoint:
    """A checkpoint's folder, the values of its config.json, and its tensors, of which only the headers are read."""

    folder: Path
    values: Mapping[str, Any]
    tensors: Tensors


def read_source(folder: Path) -> SourceCheckpoint:
    """Read a folder's config and tensor headers.

    ScaffoldError, ConfigError or CheckpointError for a folder that cannot be read or is quantized.
    """
    if not folder.is_dir():
        raise ScaffoldError(f"{folder}: is not a folder with a config.json and safetensors")
    values = read_object(folder, CONFIG, ConfigError, required=True)
    for key in ("quantization_config", "quantization"):
        if values.get(key):
            raise ScaffoldError(
                f"{folder}: is quantized ({key}); give the folder of the floats it was made from"
            )
    return SourceCheckpoint(folder, values, open_tensors(folder))


@dataclass(frozen=True)
class Fit:
    """An architecture on a checkpoint, whose config has `values`: shapes of the parameters `wanted` and `found`, by path, and of tensors, by name.

    No rule takes the tensors that are `left`; rules drop those that are `ignored`.
    """

    architecture: Architecture
    values: Mapping[str, Any]
    config: Config
    recipe: Any
    wanted: Mapping[str, Shape]
    found: Mapping[str, Shape]
    left: Mapping[str, Shape]
    ignored: Mapping[str, Shape]

    @property
    def wrong(self) -> dict[str, tuple[Shape, Shape]]:
        """The parameters whose tensor has another shape: the one wanted, and the one found."""
        both = sorted(self.wanted.keys() & self.found.keys())
        shapes = {path: (self.wanted[path], self.found[path]) for path in both}
        return {path: (wanted, found) for path, (wanted, found) in shapes.items() if wanted != found}

    @property
    def missing(self) -> dict[str, Shape]:
        """The parameters that no tensor fills."""
        return {path: shape for path, shape in self.wanted.items() if path not in self.found}

    @property
    def surplus(self) -> dict[str, Shape]:
        """The parameters that the rules produce and the model lacks."""
        return {path: shape for path, shape in self.found.items() if path not in self.wanted}

    @property
    def distance(self) -> int:
        """How many kinds of parameters and tensors do not fit; layers and experts count as one."""
        return sum(len(kinds(side)) for side in (self.wrong, self.missing, self.surplus, self.left))

    @property
    def share(self) -> float:
        """Of all kinds of parameters and tensors, the share that fits."""
        good = self.wanted.keys() & self.found.keys() - self.wrong.keys()
        return len(kinds(good)) / ((len(kinds(good)) + self.distance) or 1)


def fit(architecture: Architecture, source: SourceCheckpoint, registry: Registry) -> Fit:
    """How the architecture fits the checkpoint; ZooError when its recipe cannot be made of the config."""
    config = Config(source.values, tensors=source.tensors.arrays)
    recipe = architecture.recipe_of(config)
    if recipe.parameters(recipe.dim) > MOST:
        raise RecipeError(f"{architecture.name}: more than {MOST:,} parameters")
    model = assemble(recipe, registry)
    found, left = weights.apply(architecture.weights, source.tensors.arrays, recipe, join)
    wanted = dict(tree_flatten(model.parameters()))
    drops = [rule for rule in architecture.weights if type(rule) is Ignore]
    _, kept = weights.apply(drops, source.tensors.arrays, recipe, join)
    ignored = {
        name: array
        for name, array in source.tensors.arrays.items()
        if name not in kept and not name.endswith(BUFFERS)
    }
    shapes = [
        {name: tuple(array.shape) for name, array in arrays.items()}
        for arrays in (wanted, found, left, ignored)
    ]
    return Fit(architecture, source.values, config, recipe, *shapes)


def kinds(names: Iterable[str]) -> dict[str, list[str]]:
    """Names by their pattern: those of all layers and experts together."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(pattern(name), []).append(name)
    return found


def pattern(name: str) -> str:
    """A tensor name or parameter path with {i} in place of the layer number and {e} in place of the expert number."""
    name = re.sub(r"((?:^|\.)experts\.)\d+(?![^.])", r"\1{e}", name)
    return re.sub(r"(?<![^.])\d+(?![^.])", "{i}", name, count=1)


FUSED = {
    "query_key_value": ("query", "key", "value"),
    "qkv": ("query", "key", "value"),
    "gate_up": ("gate", "up"),
}
CERTAIN = 0.75  # share of words in common from which a rule is certain
LIKELY = 0.34  # and from which it is worth a look

# Names of one thing, as the zoo's paths call it.
WORDS = {
    **dict.fromkeys(("q", "query"), "query"),
    **dict.fromkeys(("k", "key"), "key"),
    **dict.fromkeys(("v", "value"), "value"),
    **dict.fromkeys(("o", "out", "dense", "output"), "output"),
    **dict.fromkeys(("ln", "layernorm", "norm", "rmsnorm"), "norm"),
    **dict.fromkeys(("mlp", "ffn", "ff", "feedforward"), "feedforward"),
    **dict.fromkeys(("attn", "attention", "self", "mixer"), "mixer"),
    **dict.fromkeys(("embed", "embedding", "embeddings", "wte", "tokens"), "embedding"),
}
MEANINGLESS = {"model", "layers", "layer", "block", "blocks", "h", "proj", "weight", "transformer"}


def prefix_rules(fit: Fit) -> tuple[Rule, ...]:
    """Rules for tensors whose names differ from the family's only in the first step."""
    rules: dict[str, Rule] = {}
    for kind, (name, *_) in kinds(fit.left).items():
        shape, rest = fit.left[name], name.partition(".")[2]
        for other in (rest, f"model.{name}", f"model.{rest}"):
            path = _path(fit, other, shape) if rest else None
            if path is not None and path in fit.wanted and fit.wanted[path] == shape:
                rules[kind] = Rename(kind, pattern(path))
                break
    return tuple(rules.values())


def _path(fit: Fit, name: str, shape: Shape) -> str | None:
    """The parameter that the family's rules make of a tensor of this name; None where it is not one."""
    try:
        found, _ = weights.apply(
            fit.architecture.weights, {name: mx.zeros(shape)}, fit.recipe, mx.concatenate
        )
    except (ZooError, KeyError):
        return None
    return next(iter(found)) if len(found) == 1 else None


def certain_rules(fit: Fit) -> tuple[Rule, ...]:
    """Rules for tensors that fit exactly one missing parameter, and for computed buffers."""
    found: list[Rule] = []
    for kind, names in kinds(fit.left).items():
        if kind.endswith(BUFFERS):
            found.append(Ignore(kind))
            continue
        likely = sorted(_likely(fit, kind, names), reverse=True)
        if likely and likely[0][0] >= CERTAIN and (len(likely) == 1 or likely[1][0] < likely[0][0]):
            found.append(_rule(kind, likely[0][1]))
    targets = [rule.target for rule in found if isinstance(rule, Rename | Stack)]
    return tuple(
        rule for rule in found if not isinstance(rule, Rename | Stack) or targets.count(rule.target) == 1
    )


def guess(fit: Fit, kind: str) -> Rule | None:
    """A rule from tensors of a kind to the missing parameter or parameters that they resemble most; None for none."""
    score, target = max(_likely(fit, kind, kinds(fit.left)[kind]), default=(0.0, ""))
    return _rule(kind, target) if score >= LIKELY else _split(fit, kind)


def _split(fit: Fit, kind: str) -> Rule | None:
    """A rule that splits a fused tensor, if its name says that it is fused and its rows are those of its parts."""
    shape, missing = fit.left[kinds(fit.left)[kind][0]], kinds(fit.missing)
    for parts in (parts for name, parts in FUSED.items() if name in kind.lower()):
        targets = [target for part in parts for target in missing if target.endswith(f".{part}.weight")]
        sides = [fit.missing[missing[target][0]] for target in targets]
        rows = [side[0] for side in sides]
        if len(targets) == len(parts) and shape == (sum(rows), *sides[0][1:]):
            sizes = None if len(set(rows)) == 1 else ("heads", "kv_heads", "kv_heads")
            return Split(kind, tuple(targets), sizes=sizes)
    return None


def _likely(fit: Fit, kind: str, names: list[str]) -> Iterator[tuple[float, str]]:
    """The kinds of missing parameters of the tensors' shape, each with the likeness of its name."""
    shape = fit.left[names[0]]
    if "{e}" in kind:
        experts = {name.split(".experts.")[1].partition(".")[0] for name in names if ".experts." in name}
        shape = (len(experts), *shape)
    for target, paths in kinds(fit.missing).items():
        alike = all((mark in kind) == (mark in target) for mark in ("{i}", ".bias"))
        if fit.missing[paths[0]] == shape and alike:
            # The share of the words of the shorter name that are also in the other.
            first, second = words(kind), words(target)
            yield len(first & second) / (min(len(first), len(second)) or 1), target


def _rule(kind: str, target: str) -> Rule:
    return (Stack if "{e}" in kind else Rename)(kind, target)


def words(name: str) -> set[str]:
    """The words of a name, synonyms replaced by one word."""
    split = re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower().replace("layer_norm", "norm")
    found = {WORDS.get(word, word) for word in re.split(r"[._]", split)}
    return found - MEANINGLESS - {"", "{i}", "{e}"}
