"""What later layers read: keys and values of an earlier layer, and inputs of each layer's own. Imports no mlx."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from typing import Any, ClassVar

from zoo.errors import RecipeError
from zoo.frozen import frozen
from zoo.recipe.attention import Attention
from zoo.recipe.division import Division, Share
from zoo.recipe.spec import Matrix, Spec
from zoo.recipe.tensor_parallel import divide_heads
from zoo.recipe.vocabulary import Embedding

PER_LAYER = "per_layer_inputs"  # (B, T, L, N)


@frozen()
class KeyValueSource(Attention):
    """Attention whose keys and values later layers read, under the name `shares`; None: no layer does.

    Brandon et al., 2024, "Reducing Transformer Key-Value Cache Size with Cross-Layer Attention".
    """

    kind, name = "mixer", "key-value-source"
    divided = divide_heads
    shares: str | None = None

    @property
    def gives(self) -> tuple[str, ...]:
        return () if self.shares is None else (self.shares,)


@frozen(kw_only=True)
class SharedKeyValueAttention(Attention):
    """Attention to the keys and values that an earlier layer gives under the name `source`. It has no cache.

    `kv_heads` are those of the earlier layer, and so is the mask, whatever `window` says.
    """

    kind, name = "mixer", "shared-key-value-attention"
    remembers = False
    source: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.key_norm is not None:
            raise RecipeError("key_norm: keys are an earlier layer's, normalised there")

    @property
    def takes(self) -> tuple[str, ...]:
        return (self.source,)

    def shown_fields(self) -> Iterator[tuple[str, Any]]:
        """All but the name of the source, of which the title speaks."""
        return ((name, value) for name, value in super().shown_fields() if name != "source")

    @property
    def title(self) -> str:
        """The kind of attention, with whose keys and values it reads."""
        return f"{super().title} with an earlier layer's keys and values"

    def matrices(self, dim: int) -> tuple[Matrix, ...]:
        return tuple(matrix for matrix in super().matrices(dim) if matrix.name in ("query", "output"))

    def kv_cache_size(self, dim: int) -> int:
        return 0

    def kv_widths(self, dim: int) -> tuple[int, int] | None:
        return None

    def divided(self, dim: int, share: Share) -> Division:
        """By heads, as the earlier layer is."""
        division = divide_heads(self, dim, share)
        cuts = {path: cut for path, cut in division.cuts.items() if path.startswith(("query", "output"))}
        return replace(division, cuts=cuts)


@frozen(kw_only=True)
class PerLayerEmbedding(Embedding):
    """An embedding that also gives each of `layers` layers an input of its own, of `width` numbers a token.

    It is the sum of two, over √2: the token's row in a second table of `rows` rows, times √width, and a projection of its
    vector, over √D, normalised by `projection_norm` (Gemma Team, 2025, Gemma 3n). A token beyond the rows has row 0.
    """

    kind, name = "embedding", "per-layer"
    gives: ClassVar[tuple[str, ...]] = (PER_LAYER,)
    layers: int
    width_per_layer: int
    rows: int
    projection_norm: Spec = field(metadata={"kind": "norm"})

    def width(self, part: str, dim: int) -> int:
        return self.width_per_layer if part == "projection_norm" else dim

    def matrices(self, dim: int) -> tuple[Matrix, ...]:
        wide = self.layers * self.width_per_layer
        table = Matrix("layer_tokens", wide, self.rows, uses=0)
        return (*super().matrices(dim), table, Matrix("projection", dim, wide))

    def active_parameters(self, dim: int) -> int:
        return super().active_parameters(dim) + dim * self.layers * self.width_per_layer


@frozen()
class PerLayerInput(Spec):
    """output(activation(gate(x)) · input): what the layer's own input, of `width_per_layer` numbers, adds to x."""

    kind, name = "feedforward", "per-layer-input"
    takes = (PER_LAYER,)
    width_per_layer: int
    activation: str

    def matrices(self, dim: int) -> tuple[Matrix, ...]:
        return (Matrix("gate", dim, self.width_per_layer), Matrix("output", self.width_per_layer, dim))
