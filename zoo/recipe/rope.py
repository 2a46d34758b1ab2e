"""Rotary position embeddings: their specs, and how they are read from a checkpoint's `config.json`.

Imports no mlx.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from zoo.config import Config
from zoo.errors import RecipeError
from zoo.frozen import frozen
from zoo.recipe.spec import Spec


@frozen()
class LinearScaling(Spec):
    """Every angle divided by `factor` (Chen et al., 2023)."""

    kind, name = "rope-scaling", "linear"
    factor: float = field(metadata={"least": 1})


@frozen()
class DynamicScaling(Spec):
    """NTK-aware: past `context` positions the base grows with the length of the text (bloc97, emozilla, 2023)."""

    kind, name = "rope-scaling", "dynamic"
    factor: float = field(metadata={"least": 1})
    context: int

    def check_width(self, dim: int) -> None:
        if dim < 4:  # the base grows by a power of d / (d − 2)
            raise RecipeError(
                f"factor: dynamic scaling needs at least four rotated dimensions of a head, not {dim}"
            )


@frozen()
class Llama3Scaling(Spec):
    """Long wavelengths divided by `factor`, short ones kept, a smooth step between (LLaMA 3.1, 2024).

    Where `low` is `high`, the step is sharp (LLaMA 4 Scout).
    """

    kind, name = "rope-scaling", "llama3"
    factor: float = field(metadata={"least": 1})
    low: float
    high: float
    context: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.high < self.low:
            raise RecipeError(f"high: {self.high} is less than low, {self.low}")


@frozen()
class YarnScaling(Spec):
    """Fast dimensions kept, slow ones divided by `factor`, a ramp between; queries and keys times `magnitude`.

    Peng et al., 2023. `context` is the length the model was first trained for.
    """

    kind, name = "rope-scaling", "yarn"
    factor: float = field(metadata={"least": 1})
    context: int
    fast: float = 32.0
    slow: float = 1.0
    magnitude: float = 1.0
    truncate: bool = True


@frozen()
class LongScaling(Spec):
    """Each wavelength times a factor of its own: of `short` in texts up to `context` tokens, else of `long`.

    LongRoPE (Ding et al., 2024). Queries and keys are multiplied by `magnitude`.
    """

    kind, name = "rope-scaling", "longrope"
    short: tuple[float, ...]
    long: tuple[float, ...]
    context: int
    magnitude: float = 1.0

    @property
    def title(self) -> str:
        """The name of its paper."""
        return "LongRoPE scaling"

    def check_width(self, dim: int) -> None:
        for name in ("short", "long"):
            if len(getattr(self, name)) != dim // 2:
                raise RecipeError(
                    f"{name}: {len(getattr(self, name))} factors for {dim // 2} pairs of dimensions"
                )


@frozen()
class RoPE(Spec):
    """Rotary positions: each pair of query and key dimensions is turned by position · theta^(−2k/d).

    Su et al., 2021. `dims` of each head are turned (None: all). `interleaved` pairs neighbours (2k, 2k+1);
    otherwise halves (k, k + d/2) are paired, as in most checkpoints.
    """

    kind, name = "position", "rope"
    theta: float = field(default=10000.0, metadata={"above": 1})
    dims: int | None = None
    interleaved: bool = False
    scaling: Spec | None = field(default=None, metadata={"kind": "rope-scaling"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dims is not None and self.dims % 2:
            raise RecipeError(f"dims: {self.dims} is odd, and dimensions are rotated in pairs")

    def check_width(self, dim: int) -> None:
        if self.dims is not None and self.dims > dim:
            raise RecipeError(f"dims: {self.dims} of a head that has only {dim}")
        if (self.dims or dim) % 2:
            raise RecipeError(f"dims: {self.dims or dim} is odd, and dimensions are turned in pairs")

    def width(self, part: str, dim: int) -> int:
        return self.dims or dim

    @staticmethod
    def of(
        config: Config,
        head_dim: int | None = None,
        *,
        layer_type: str | None = None,
        theta_key: str = "rope_theta",
        partial_key: str = "partial_rotary_factor",
        scaling_key: str = "rope_scaling",
        context_key: str = "max_position_embeddings",
        kinds: Mapping[str, Kind] | None = None,
    ) -> RoPE:
        """The rotary positions that a checkpoint's `config.json` describes, in either of transformers' spellings.

        The keys' names are arguments: `theta_key` of the base, `partial_key` of the share of each head that is turned,
        `scaling_key` of the object that scales, `context_key` of how many positions there are. An object
        `rope_parameters` (transformers 5) has names of its own and takes precedence. `head_dim` is the width of a head, where it
        is not width ÷ heads. Where `rope_parameters` has an object for each layer type, that of `layer_type`
        ("sliding_attention") is read. `kinds` adds kinds of scaling by their `rope_type`: a function of that object and of the
        config, whose keys it reads, and of the number of positions, that gives a spec of the kind "rope-scaling".
        ConfigError for a kind that is not known, for a key of it that nothing read, and for `rope_parameters` by layer
        type without a `layer_type`.
        """
        # Both are read even where the object has its own: a published config may have them all.
        outer_theta, outer_partial = config.number(theta_key, 10000.0), config.number(partial_key, 1.0)
        inner, by_type = _rope_object(config, scaling_key, layer_type)
        theta = inner.number("rope_theta", outer_theta)
        if theta <= 1:
            where, key = (inner, "rope_theta") if "rope_theta" in inner else (config, theta_key)
            raise where.error(key, "must be greater than 1")
        partial = inner.number("partial_rotary_factor", outer_partial)
        dims = None if partial == 1.0 else _rotated_dims(inner, config, partial_key, partial, head_dim)
        scaling = _scaling(inner, config, context_key, {**KINDS, **(kinds or {})})
        unread = inner.unread()
        if unread:
            raise inner.error(unread[0], "is not implemented")
        if not by_type:  # which have no one value for all layers
            config.note(theta_key, theta)
            config.note(partial_key, partial)
        return RoPE(theta=theta, dims=dims, scaling=scaling)


@frozen()
class QueryScale(Spec):
    """Queries times 1 + `beta` · ln(1 + ⌊(position + `shift`) / `context`⌋), against softmax growing flat over long texts.

    Meta, 2025 (LLaMA 4), after Nakanishi, 2025, arXiv:2501.19399. The first position is 0.
    """

    kind, name = "position", "query-scale"
    beta: float = field(metadata={"above": 0})
    context: int
    shift: int = field(default=0, metadata={"least": 0})

    @property
    def title(self) -> str:
        """What it does."""
        return "queries scaled by position"


UNSCALED = ("default", "mrope")  # mrope: positions in time, height and width, of models that see pictures
MOST_FACTOR = 1e6  # by which positions are stretched

# A kind of scaling: from the object that says how positions are scaled, the whole config, and how many positions the
# model has, to the spec; None for no scaling.
Kind = Callable[[Config, Config, int], Spec | None]


def _rope_object(config: Config, scaling_key: str, layer_type: str | None) -> tuple[Config, bool]:
    """The object that describes the rotation of a layer type, and whether each layer type has its own."""
    config.ignore("rope_parameters")  # where both stand, `scaling_key` takes precedence
    key = scaling_key if config.get(scaling_key) else "rope_parameters"
    found = config.nested(key) or Config({})
    if not by_layer_type(found):
        return found, False
    if layer_type is None:
        raise config.error(key, "has an object for each layer type, where one for all layers is read")
    return found.nested(layer_type) or Config({}), True


def _rotated_dims(
    inner: Config, config: Config, partial_key: str, partial: float, head_dim: int | None
) -> int:
    """How many dimensions of a head are rotated, of which the config gives the share `partial`."""
    named = "partial_rotary_factor" in inner
    where, key = (inner, "partial_rotary_factor") if named else (config, partial_key)
    if not 0 < partial < 1:
        raise where.error(key, "must lie in (0, 1]")
    dims = int((head_dim or config.head_width()) * partial)
    if dims < 2 or dims % 2:
        raise where.error(key, f"turns {dims} dimensions of a head, not an even number")
    return dims


def by_layer_type(parameters: Mapping[str, Any]) -> bool:
    """Whether `rope_parameters` has an object for each layer type, in place of one for all layers."""
    return bool(parameters) and all(isinstance(value, Mapping) for value in parameters.values())


def _scaling(inner: Config, config: Config, context_key: str, kinds: Mapping[str, Kind]) -> Spec | None:
    older = inner.get("type")
    key = "type" if older is not None and "rope_type" not in inner else "rope_type"
    kind = inner.choice(key, (*UNSCALED, *kinds), "default")
    # Published configs carry what only other kinds read.
    for values in (inner, config):
        values.ignore("original_max_position_embeddings")
    # A text's tokens have the same position in time, height and width: which of them an angle takes changes nothing.
    inner.ignore("mrope_section", "mrope_interleaved")
    if kind in UNSCALED:
        inner.ignore("factor")
        return None
    return kinds[kind](inner, config, config.count(context_key, 2048))


def trained_context(inner: Config, config: Config, default: int, least: int = 1) -> int:
    """The number of positions that a model was first trained for: from the config, the scaling object, or `default`."""
    found = inner.count("original_max_position_embeddings", None, least=least)
    return config.count("original_max_position_embeddings", found, least=least) or default


def _llama3(inner: Config, config: Config, positions: int) -> Spec:
    factor = _factor(inner)
    low, high = inner.number("low_freq_factor"), inner.number("high_freq_factor")
    if high < low:
        raise inner.error("high_freq_factor", f"is less than low_freq_factor, {low}")
    return Llama3Scaling(factor, low, high, trained_context(inner, config, positions))


def _factor(inner: Config) -> float:
    return inner.number("factor", least=1, most=MOST_FACTOR)


def _yarn(inner: Config, config: Config, positions: int) -> Spec:
    context = trained_context(inner, config, positions)
    factor = inner.number("factor", positions / context, least=1, most=MOST_FACTOR)
    if not 1 <= factor <= MOST_FACTOR:
        raise inner.error(
            "factor", f"is missing, and {positions} positions are not 1..{MOST_FACTOR:g} × {context}"
        )

    def growth(weight: float) -> float:  # section 3.4 of Peng et al.: √(1/t) = 0.1 ln(s) + 1
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    both, above = (inner.number(key, 0.0, least=0, most=100) for key in ("mscale", "mscale_all_dim"))
    magnitude = growth(both) / growth(above) if both and above else growth(1.0)
    return YarnScaling(
        factor=factor,
        context=context,
        fast=inner.number("beta_fast", 32.0, least=0) or 32.0,
        slow=inner.number("beta_slow", 1.0, least=0) or 1.0,
        magnitude=inner.number("attention_factor", magnitude, least=1e-3, most=1e3),
        truncate=inner.flag("truncate", True),
    )


def _longrope(inner: Config, config: Config, positions: int) -> Spec:
    context = trained_context(inner, config, positions, least=2)
    growth = inner.number("factor", positions / context, least=1e-3, most=MOST_FACTOR)
    magnitude = math.sqrt(1 + math.log(growth) / math.log(context)) if growth > 1 else 1.0
    return LongScaling(
        short=inner.numbers("short_factor", least=1e-3, most=MOST_FACTOR),
        long=inner.numbers("long_factor", least=1e-3, most=MOST_FACTOR),
        context=context,
        magnitude=inner.number("attention_factor", magnitude, least=1e-3, most=1e3),
    )


KINDS: dict[str, Kind] = {
    "linear": lambda inner, config, positions: LinearScaling(_factor(inner)),
    "dynamic": lambda inner, config, positions: DynamicScaling(_factor(inner), positions),
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
