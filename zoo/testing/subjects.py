"""Subjects of the conformance suite: a model, with random weights or a checkpoint's, and texts for it.

Axes: B batch, T length, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten

from zoo.architecture import Architecture
from zoo.assemble import assemble
from zoo.checkpoint.convert import save
from zoo.checkpoint.open import make_recipe
from zoo.checkpoint.parameters import choose, quantize
from zoo.checkpoint.quantized_matrix import QuantizationSpec
from zoo.errors import PluginError, ZooError, warn
from zoo.host.registry import Registry, default_registry
from zoo.loading import Loaded, load
from zoo.recipe import Model

TOLERANCE = 1e-4  # of the range of the logits, in float32
TOLERANCE_16_BITS = 2e-2
LENGTH = 24  # tokens of a test text: more than any window of the small presets
MOST_PARAMETERS = 50_000_000  # of a model that is built only to be tested
MOST_SAVED = 2**30  # bytes of a checkpoint that a check may write to disk


@dataclass
class Subject:
    """An architecture under test: its small model with random weights, and a batch of random texts (B, T).

    `trained`: the weights are those of a checkpoint, of any size.
    """

    architecture: Architecture
    numbers: Mapping[str, Any]
    recipe: Any
    model: nn.Module
    tokens: mx.array
    registry: Registry
    trained: bool = False

    @property
    def vocab(self) -> int:
        """The size of the vocabulary that texts are drawn from."""
        return self.recipe.embedding.vocab


@dataclass(frozen=True)
class Check:
    """One property: its name, why it must hold, the function that raises AssertionError, and the subjects it applies to."""

    name: str
    reason: str
    run: Callable[[Subject], None]
    applies: Callable[[Subject], bool]

    @classmethod
    def of(cls, function: Callable[[Subject], None], applies: Callable[[Subject], bool]) -> Check:
        """The check that a function makes, whose docstring is the reason."""
        text = (function.__doc__ or "").rstrip(".")
        return cls(function.__name__, text[:1].lower() + text[1:], function, applies)


def decodes(subject: Subject) -> bool:
    """Whether the model continues text token by token, from a cache."""
    return subject.model.decodes and not subject.model.translates


def is_causal(subject: Subject) -> bool:
    """Whether a token may see only those before it."""
    return decodes(subject) and subject.architecture.causality == "causal"


def translates(subject: Subject) -> bool:
    """Whether the model reads one text whole and writes another."""
    return subject.model.translates


def sees_no_later_token(subject: Subject) -> bool:
    """Whether a token of the text that the model writes may see only those before it."""
    return is_causal(subject) or translates(subject)


def streams(subject: Subject) -> bool:
    """Whether text is made token by token, each from those before it."""
    generates = subject.architecture.task == "generate"  # not a decoder whose head gives labels
    return generates and decodes(subject) and subject.architecture.causality in ("causal", "prefix")


def writes(subject: Subject) -> bool:
    """Whether the model writes text token by token from a cache, by itself or as a translation."""
    return streams(subject) or translates(subject)


def is_saved(subject: Subject) -> bool:
    """Whether the model is small enough to be saved by a check."""
    return sum(array.nbytes for _, array in tree_flatten(subject.model.parameters())) <= MOST_SAVED


QUANTIZATION = QuantizationSpec(8, 32)  # what the suite quantizes to


def quantizes(subject: Subject) -> list[Any]:
    """A list with the architecture's function that chooses a layer's quantization; [] for none."""
    return [] if subject.architecture.quantizes is None else [subject.architecture.quantizes]


def can_be_quantized(subject: Subject) -> bool:
    """Whether it is small enough to be saved, and some layer is or can be quantized."""
    layers = subject.model.named_modules()
    return is_saved(subject) and any(
        "scales" in layer or choose(path, layer, QUANTIZATION, quantizes(subject)) for path, layer in layers
    )


def answer(subject: Subject, model: nn.Module | None = None) -> mx.array:
    """The output (B, T, V) of a model, the subject's own or another of its kind, for all of the texts."""
    model = subject.model if model is None else model
    return model(subject.tokens, subject.tokens) if subject.model.translates else model(subject.tokens)


def is_third_party(subject: Subject) -> bool:
    """Whether the architecture is of a third party's plugin that is a module."""
    plugin = subject.registry.plugin_of(subject.architecture)
    return not plugin.first_party and bool(plugin.module)


def numbers_of(architecture: Architecture, preset: str | None = None) -> Mapping[str, Any]:
    """The config numbers of a preset small enough to build: the one named, "tiny", or the pocket's."""
    for name in [preset] if preset else ["tiny", "pocket"]:
        candidate = architecture.preset(name)
        if candidate is not None and candidate.config is not None:
            return candidate.config
    raise ZooError(
        f"{architecture.name}: no preset {preset or 'tiny or pocket'} with numbers to build a small model from"
    )


def subject(name: str, preset: str | None = None, registry: Registry | None = None, seed: int = 0) -> Subject:
    """The architecture `name` as a small model with random weights."""
    registry = registry or default_registry()
    architecture = registry.architecture(name)
    numbers = numbers_of(architecture, preset)
    recipe = make_recipe(architecture, numbers, registry)
    if (count := recipe.parameters(recipe.dim)) > MOST_PARAMETERS:
        raise ZooError(
            f"{name}: {preset or 'its smallest preset'} has {count:,} parameters, too many for a test"
        )
    model = assemble(recipe, registry)
    randomise(model, seed)
    return Subject(architecture, numbers, recipe, model, random_texts(recipe, seed), registry)


def subject_of(loaded: Loaded, registry: Registry | None = None) -> Subject:
    """A loaded checkpoint as a subject. Load it in float32, for which the tolerances are made.

    PluginError where another library's code runs a checkpoint whose model_type is a broken plugin's name.
    """
    texts = random_texts(loaded.recipe)
    registry = registry or loaded.registry
    if loaded.architecture.bridged:
        _check_not_in_place_of_a_plugin(loaded, registry)
    return Subject(loaded.architecture, loaded.config, loaded.recipe, loaded.model, texts, registry, True)


def _check_not_in_place_of_a_plugin(loaded: Loaded, registry: Registry) -> None:
    library = f"{loaded.architecture.name.partition('::')[0]}'s code"
    model_type = str(loaded.config.get("model_type"))
    plugin = registry.unloaded_plugin(model_type)
    if plugin and plugin.failed and not plugin.first_party:
        raise PluginError(
            f"{loaded.folder}: model_type {model_type!r} is of the {plugin.unloaded_label}; {library} is not "
            f"tested in its place; ZOO_BLOCK={plugin.name} tests it"
        )
    for plugin in registry.plugins:
        if plugin.failed and not plugin.first_party:
            warn(f"{library} is tested, without the {plugin.unloaded_label}")


def loaded_of(subject: Subject, config: Mapping[str, Any] | None = None) -> Loaded:
    """A subject as a loaded model without a tokenizer: prompts are ids."""
    given = (subject.model, None, subject.architecture, subject.recipe, dict(config or {}), Path("."))
    return Loaded(*given, registry=subject.registry)


def save_model(subject: Subject, model: nn.Module, folder: Path) -> None:
    """Save a model of the subject's architecture into `folder`."""
    save(folder, model, subject.architecture, subject.recipe, subject.numbers, registry=subject.registry)


def load_model(subject: Subject, folder: Path, **options: Any) -> Loaded:
    """The model of the subject's architecture in `folder`, in float32; `options` are those of `zoo.load`."""
    how: dict[str, Any] = dict(architecture=subject.architecture, registry=subject.registry)
    return load(folder, dtype="float32", **how, **options)


def packed_model(subject: Subject, folder: Path) -> nn.Module:
    """The subject's model quantized, once it is saved into `folder` and loaded."""
    save_model(subject, subject.model, folder)
    model: nn.Module = load_model(subject, folder).model
    quantize(model, QUANTIZATION, quantizes(subject))
    return model


def random_texts(recipe: Model, seed: int = 0) -> mx.array:
    """Two texts of random tokens, (B, T), as long as the model can take, but at most `LENGTH`."""
    length = min(LENGTH, recipe.context or LENGTH)
    return mx.random.randint(0, recipe.embedding.vocab, (2, length), key=mx.random.key(seed + 1))


def randomise(model: nn.Module, seed: int = 0) -> None:
    """Give every parameter a random value, norms and biases too, so that each one changes the output."""
    parameters = tree_flatten(model.parameters())
    keys = mx.random.split(mx.random.key(seed), len(parameters))
    drawn = []
    for (path, array), key in zip(parameters, keys, strict=True):
        centre, spread = (1.0, 0.2) if array.ndim < 2 else (0.0, array.shape[-1] ** -0.5)
        drawn.append((path, centre + spread * mx.random.normal(array.shape, key=key)))
    model.update(tree_unflatten(drawn))
    mx.eval(model.parameters())


def same(found: mx.array, expected: mx.array, what: str, tolerance: float | None = None) -> None:
    """Raise AssertionError, saying where and by how much, unless the two agree to `tolerance` of the expected range.

    By default that is `TOLERANCE`, or `TOLERANCE_16_BITS` where one of the two has 16 bits.
    """
    assert found.shape == expected.shape, f"{what}: shape {found.shape}, expected {expected.shape}"
    if tolerance is None:
        tolerance = TOLERANCE if found.dtype == expected.dtype == mx.float32 else TOLERANCE_16_BITS
    found, expected = found.astype(mx.float32), expected.astype(mx.float32)
    scale = (expected.max() - expected.min()).item()
    difference = mx.abs(found - expected)
    worst = difference.max().item()
    if not worst <= tolerance * scale:  # a NaN fails too
        place = tuple(map(int, np.unravel_index(mx.argmax(difference).item(), difference.shape)))
        raise AssertionError(
            f"{what}: largest difference {worst:.3g} at {place}, allowed {tolerance * scale:.3g}"
        )


def same_on_average(found: mx.array, expected: mx.array, what: str, tolerance: float = 0.02) -> None:
    """Raise AssertionError unless the mean difference is at most `tolerance` of the expected range: for numbers of 16 bits.

    Their rounding may tip a router towards another expert, which changes all of one token's logits.
    """
    assert mx.isfinite(found).all().item(), f"{what} are not finite"
    found, expected = found.astype(mx.float32), expected.astype(mx.float32)
    allowed = tolerance * (expected.max() - expected.min()).item()
    off = mx.abs(found - expected).mean().item()
    assert off <= allowed, f"{what}: off by {off:.3g} on average, allowed {allowed:.3g}"


def check_greedy(tokens: Sequence[int], rows: mx.array, logits: mx.array) -> None:
    """AssertionError unless each token has the largest logit of its row (V,), up to near ties in the range of `logits`."""
    margin = TOLERANCE * (logits.max() - logits.min()).item()
    for position, token in enumerate(tokens):
        lost = (rows[position].max() - rows[position, token]).item()
        assert lost <= margin, f"token {position} is {token}, whose logit is {lost:.3g} below the largest"


@contextmanager
def weights_in(subject: Subject, dtype: mx.Dtype) -> Iterator[None]:
    """The model's floats in `dtype`, until the end of the block."""
    parameters = subject.model.parameters()
    try:
        subject.model.set_dtype(dtype)
        yield
    finally:
        subject.model.update(parameters)
