"""The vocabulary: frozen dataclasses ("specs") that say what a model is. Imports no mlx.

A recipe is a tree of specs. The path of a field in that tree is the path of its parameters in the running
model and its address in a trace: `layers.3.mixer.query`. A variant differs from another by values only.

Every spec answers two questions in plain arithmetic, for a width `dim`: how many parameters it holds
(`parameters`), and how many numbers it caches for each token generated (`cached`).
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from zoo.errors import RecipeError

LARGEST = 2**31 - 1  # no count in a recipe may exceed what an array dimension can hold

ACTIVATIONS = ("relu", "relu2", "gelu", "gelu_tanh", "quick_gelu", "silu", "tanh", "sigmoid")


@dataclass(frozen=True)
class Spec:
    """What one part of a model is. Subclasses set `kind` ("mixer") and `name` ("attention").

    Whole numbers must lie in 1..2³¹−1 and floats be finite, or `RecipeError` names the field.
    """

    kind: ClassVar[str] = ""
    name: ClassVar[str] = ""

    def __post_init__(self) -> None:
        hints = field_types(type(self))
        for field in dataclasses.fields(self):
            problem = mismatch(getattr(self, field.name), hints[field.name], field.metadata.get("least", 1))
            if problem:
                raise RecipeError(f"{field.name}: {problem}")

    @classmethod
    def block(cls) -> str:
        """The identifier in JSON and in the registry: "kind/name"."""
        return f"{cls.kind}/{cls.name}"

    def parts(self) -> Iterator[tuple[str, Spec | tuple[Spec, ...]]]:
        """The fields that hold specs, in the order of their declaration."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Spec) or (isinstance(value, tuple) and value and isinstance(value[0], Spec)):
                yield field.name, value

    def walk(self, path: str = "") -> Iterator[tuple[str, Spec]]:
        """This spec and all below it, each with its path: "layers.3.mixer"."""
        yield path, self
        for name, value in self.parts():
            for key, part in enumerate(value) if isinstance(value, tuple) else ((None, value),):
                step = name if key is None else f"{name}.{key}"
                yield from part.walk(f"{path}.{step}" if path else step)

    def width(self, part: str, dim: int) -> int:
        """The width that the field `part` works in, given this spec's own."""
        return dim

    def parameters(self, dim: int) -> int:
        """How many parameters the module of this spec holds in width `dim`, its parts included."""
        return self.own_parameters(dim) + self._sum("parameters", dim)

    def own_parameters(self, dim: int) -> int:
        """Parameters that are this spec's own, its parts' left out."""
        return 0

    def cached(self, dim: int) -> int:
        """How many numbers a cache keeps for each token."""
        return self._sum("cached", dim)

    def _sum(self, method: str, dim: int) -> int:
        total = 0
        for name, value in self.parts():
            for part in value if isinstance(value, tuple) else (value,):
                total += getattr(part, method)(self.width(name, dim))
        return total

    def change(self, **changes: Any) -> typing.Self:
        """A copy with some fields changed; a dict for a field that holds a spec changes that spec's fields."""
        values = {}
        for name, value in changes.items():
            if name not in {field.name for field in dataclasses.fields(self)}:
                raise RecipeError(f"{name}: {self.block()} has no such field")
            current = getattr(self, name)
            values[name] = (
                current.change(**value) if isinstance(value, dict) and isinstance(current, Spec) else value
            )
        return dataclasses.replace(self, **values)


@dataclass(frozen=True)
class LayerNorm(Spec):
    """(x − mean) / √(variance + eps) · weight + bias, over the features of one token (Ba et al., 2016)."""

    kind, name = "norm", "layernorm"
    eps: float = 1e-5
    bias: bool = True

    def own_parameters(self, dim: int) -> int:
        return 2 * dim if self.bias else dim


@dataclass(frozen=True)
class RMSNorm(Spec):
    """x / √(mean(x²) + eps) · weight: no centring (Zhang and Sennrich, 2019)."""

    kind, name = "norm", "rmsnorm"
    eps: float = 1e-6

    def own_parameters(self, dim: int) -> int:
        return dim


@dataclass(frozen=True)
class LearnedPositions(Spec):
    """One learned vector a position, added to the token's (Gehring et al., 2017; GPT, BERT)."""

    kind, name = "position", "learned"
    context: int

    def own_parameters(self, dim: int) -> int:
        return self.context * dim


@dataclass(frozen=True)
class LinearScaling(Spec):
    """Every angle divided by `factor` (Chen et al., 2023)."""

    kind, name = "rope-scaling", "linear"
    factor: float


@dataclass(frozen=True)
class DynamicScaling(Spec):
    """NTK-aware: past `context` positions the base grows with the length of the text (bloc97, emozilla, 2023)."""

    kind, name = "rope-scaling", "dynamic"
    factor: float
    context: int


@dataclass(frozen=True)
class Llama3Scaling(Spec):
    """Long wavelengths divided by `factor`, short ones kept, a smooth step between (LLaMA 3.1, 2024)."""

    kind, name = "rope-scaling", "llama3"
    factor: float
    low: float
    high: float
    context: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.high <= self.low:
            raise RecipeError(f"high: {self.high} must be greater than low, {self.low}")


@dataclass(frozen=True)
class YarnScaling(Spec):
    """Fast dimensions kept, slow ones divided by `factor`, a ramp between; queries and keys times `magnitude`.

    Peng et al., 2023. `context` is the length the model was first trained for.
    """

    kind, name = "rope-scaling", "yarn"
    factor: float
    context: int
    fast: float = 32.0
    slow: float = 1.0
    magnitude: float = 1.0
    truncate: bool = True


@dataclass(frozen=True)
class RoPE(Spec):
    """Rotary positions: each pair of query and key dimensions is turned by position · theta^(−2k/d).

    Su et al., 2021. `dims` of each head are turned (None: all). `interleaved` pairs neighbours (2k, 2k+1);
    otherwise halves (k, k + d/2) are paired, as in most checkpoints.
    """

    kind, name = "position", "rope"
    theta: float = 10000.0
    dims: int | None = None
    interleaved: bool = False
    scaling: Spec | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.theta <= 0:
            raise RecipeError(f"theta: must be positive, got {self.theta}")

    def width(self, part: str, dim: int) -> int:
        return self.dims or dim

    @staticmethod
    def of(config: Any, head_dim: int | None = None) -> RoPE:
        """The rotary positions that a checkpoint's `config.json` describes, in either of its spellings."""
        from zoo.config import rope

        return rope(config, head_dim)


@dataclass(frozen=True)
class Attention(Spec):
    """Multi-head attention, grouped when `kv_heads` < `heads` (Vaswani et al., 2017; Ainslie et al., 2023).

    `bias` is of the query, key and value projections, `output_bias` of the output's. `query_norm` and
    `key_norm` normalise each head. `window`: a token sees itself and the `window` − 1 before it. Scores are
    multiplied by `scale` (None: head_dim^−½).
    """

    kind, name = "mixer", "attention"
    heads: int
    kv_heads: int | None = None
    head_dim: int | None = None
    bias: bool = False
    output_bias: bool = False
    rope: Spec | None = None
    query_norm: Spec | None = None
    key_norm: Spec | None = None
    window: int | None = None
    scale: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.heads % (self.kv_heads or self.heads):
            raise RecipeError(f"kv_heads: {self.kv_heads} does not divide heads, {self.heads}")

    def head_width(self, dim: int) -> int:
        """The width of one head."""
        if self.head_dim is None and dim % self.heads:
            raise RecipeError(f"heads: {self.heads} does not divide the width, {dim}")
        return self.head_dim or dim // self.heads

    def width(self, part: str, dim: int) -> int:
        return self.head_width(dim)

    def own_parameters(self, dim: int) -> int:
        queries = self.heads * self.head_width(dim)
        keys = (self.kv_heads or self.heads) * self.head_width(dim)
        biases = (queries + 2 * keys) * self.bias + dim * self.output_bias
        return dim * (queries + 2 * keys) + queries * dim + biases

    def cached(self, dim: int) -> int:
        return 2 * (self.kv_heads or self.heads) * self.head_width(dim)


@dataclass(frozen=True)
class MLP(Spec):
    """down(activation(up(x))): two projections, D → hidden → D (Vaswani et al., 2017)."""

    kind, name = "feedforward", "mlp"
    hidden: int
    activation: str = "gelu"
    bias: bool = True
    projections: ClassVar[int] = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.activation not in ACTIVATIONS:
            raise RecipeError(f"activation: {self.activation!r} is not one of {', '.join(ACTIVATIONS)}")

    def own_parameters(self, dim: int) -> int:
        biases = (self.projections - 1) * self.hidden + dim
        return self.projections * dim * self.hidden + biases * self.bias


@dataclass(frozen=True)
class GatedMLP(MLP):
    """down(activation(gate(x)) · up(x)); with silu it is SwiGLU (Shazeer, 2020)."""

    kind, name = "feedforward", "gated-mlp"
    activation: str = "silu"
    bias: bool = False
    projections: ClassVar[int] = 3


@dataclass(frozen=True)
class Layer(Spec):
    """A mixer and a feed-forward, each with a residual sum and a norm.

    `placement` "pre": x + f(norm(x)) (GPT-2 on). "post": norm(x + f(x)) (2017, GPT-1, BERT).
    """

    kind, name = "layer", "residual"
    mixer: Spec
    feedforward: Spec
    mixer_norm: Spec
    feedforward_norm: Spec
    placement: str = "pre"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.placement not in ("pre", "post"):
            raise RecipeError(f"placement: {self.placement!r} is neither 'pre' nor 'post'")


@dataclass(frozen=True)
class Embedding(Spec):
    """A table of one vector a token, (V, D), and what marks the position, when that is added here."""

    kind, name = "embedding", "tokens"
    vocab: int
    dim: int
    positions: Spec | None = None

    def own_parameters(self, dim: int) -> int:
        return self.vocab * dim


@dataclass(frozen=True)
class Head(Spec):
    """Hidden states to logits, D → V: the embedding table again when `tied`, else a matrix of its own.

    `vocab` None: the embedding's.
    """

    kind, name = "head", "logits"
    tied: bool = False
    bias: bool = False
    vocab: int | None = None

    def own_parameters(self, dim: int) -> int:
        if self.tied:
            return 0
        return (dim + self.bias) * (self.vocab or 0)


@dataclass(frozen=True)
class Decoder(Spec):
    """Embedding, layers, final norm (None under Post-LN), head. `context` is the most positions it can take.

    `causality`: "causal", "prefix" (the prompt sees itself both ways) or "full".
    """

    kind, name = "model", "decoder"
    embedding: Embedding
    layers: tuple[Spec, ...]
    norm: Spec | None
    head: Head
    context: int | None = None
    causality: str = "causal"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.layers:
            raise RecipeError("layers: a model needs at least one")
        if self.head.vocab is None:
            object.__setattr__(self, "head", self.head.change(vocab=self.embedding.vocab))

    @property
    def dim(self) -> int:
        """The model's width, D."""
        return self.embedding.dim

    def change_layers(
        self, change: Callable[[int, Spec], Mapping[str, Any]] | None = None, **changes: Any
    ) -> typing.Self:
        """A copy with every layer changed: by `changes`, or by what `change(index, layer)` gives for each."""
        layers = tuple(
            layer.change(**(change(index, layer) if change else changes)) for index, layer in enumerate(self.layers)
        )
        return dataclasses.replace(self, layers=layers)


def repeat(layer: Spec, count: int) -> tuple[Spec, ...]:
    """The same layer `count` times."""
    return (layer,) * count


_TYPES: dict[type, dict[str, Any]] = {}


def field_types(cls: type) -> dict[str, Any]:
    """The types of a spec's fields, evaluated once a class."""
    if cls not in _TYPES:
        _TYPES[cls] = typing.get_type_hints(cls)
    return _TYPES[cls]


def mismatch(value: Any, hint: Any, least: int = 1) -> str | None:
    """Why `value` is not of the type `hint`, or None when it is. Whole numbers pass for floats."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        reasons = [mismatch(value, option, least) for option in typing.get_args(hint)]
        return None if None in reasons else next(r for r in reasons if r)
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        if not isinstance(value, tuple):
            return f"expected a list, got {value!r}"
        return next((m for m in (mismatch(item, inner, least) for item in value) if m), None)
    if hint is int:
        if isinstance(value, bool) or not isinstance(value, int):
            return f"expected a whole number, got {value!r}"
        return None if least <= value <= LARGEST else f"must lie in {least}..{LARGEST}, got {value}"
    if hint is float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return f"expected a number, got {value!r}"
        return None if math.isfinite(value) else f"must be finite, got {value}"
    if hint is None or hint is type(None):
        return None if value is None else f"expected null, got {value!r}"
    if isinstance(hint, type) and not isinstance(value, hint):
        wanted = hint.block() if issubclass(hint, Spec) and hint.kind else {str: "text", bool: "true or false"}.get(hint)
        return f"expected {wanted or 'a block'}, got {value!r}"
    return None
