"""Capabilities that a model declares, and methods that a module may have beside `__call__`. Axes: B batch, T length, D width.

Each of the methods is a protocol, which a module declares by having the method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import mlx.core as mx
import mlx.nn as nn

from zoo import recipe
from zoo.blocks.position import AngleRanges
from zoo.cache import CachePolicy, flatten_caches, refused
from zoo.errors import RecipeError
from zoo.recipe.models import Needs, needs

Inputs = Literal["tokens", "source and target"]
Side = Literal["left", "right"]


class Model(nn.Module):
    """The declarations of a model. A class states what differs from these defaults, which are a decoder's.

    | | |
    |---|---|
    | `inputs` | it is called as `model(tokens)`, or, an encoder-decoder, as `model(source, target)` |
    | `decodes` | it predicts the next token, with a cache: `make_cache(policy)`; then `backbone` and `head`, or `encode` and `decode` |
    | `padding` | the sides of a row on which its mask may mark padding |
    | `last_chunk` | the most tokens that the last pass over a prompt may take; None: no limit of its own |
    | `angles` | the lengths of text at which the angles of its positions change |
    """

    __call__: Callable[..., Any]
    inputs: Inputs = "tokens"
    decodes: bool = True
    padding: frozenset[Side] = frozenset({"left"})
    last_chunk: int | None = None
    angles: AngleRanges = AngleRanges()

    @property
    def translates(self) -> bool:
        """Whether it reads a source and writes a target: an encoder-decoder."""
        return self.inputs == "source and target"

    @property
    def encodes(self) -> bool:
        """Whether it has `encode(tokens, mask)`, (B, T) -> (B, T, D): hidden states that see in both directions."""
        return self.translates or not self.decodes

    def sanitize(self, tensors: Any) -> Any:
        """A checkpoint's `Tensors` under the names that the weight rules expect."""
        return tensors

    def quantizes(self, path: str, quantization: Any) -> Any:
        """The quantization of the layer at `path` when `quantization` is asked for; None leaves the layer as it is."""
        return quantization

    def select(self, caches: Iterable[Any], rows: mx.array) -> None:
        """Keep these rows of the batch, (B,), in the caches that `make_cache` made: the steps of a beam search."""
        for cache in caches:
            cache.select(rows)

    def plain_caches(self, caches: Iterable[Any]) -> list[Any]:
        """The plain caches among those that `make_cache` made, each with the methods of `zoo.cache.Cache` that roll back.

        That is `trims` and `trim`, `restores`, `snapshot` and `restore`.
        """
        return list(flatten_caches(caches))

    def refused(self, caches: Iterable[Any], policy: CachePolicy) -> str | None:
        """The reason, naming the setting, why the caches of `make_cache(policy)` cannot follow it; None when they can."""
        return refused(caches, policy)


class Tower(Model, nn.Module):
    """Embedding, layers, and perhaps a final norm, a head and a relative position bias: a decoder or an encoder."""

    def __init__(
        self,
        spec: recipe.Decoder | recipe.Encoder,
        *,
        dim: int,
        index: int = 0,
        embedding: nn.Module,
        layers: list[Any],
        norm: Any = None,
        head: Any = None,
        relative: Any = None,
    ) -> None:
        super().__init__()
        self.spec = spec
        self.embedding, self.layers = embedding, layers
        self.norm, self.head, self.relative = norm, head, relative  # None is no part
        if head is not None and spec.head is not None and spec.head.ties_embedding:
            if not hasattr(head, "tie"):
                block = f"{spec.head.block()} says that it is tied"
                raise RecipeError(
                    f"head: {block}: its module needs a method `tie(embedding)`, as zoo.blocks.head.Head has"
                )
            head.tie(embedding)

    @cached_property
    def needs(self) -> list[Needs]:
        """The masks, caches and values that each layer is called with."""
        known = {id(layer): needs(layer) for layer in self.spec.layers}
        return [known[id(layer)] for layer in self.spec.layers]


@runtime_checkable
class MakesCache(Protocol):
    """A mixer, a recurrent part, or a layer: it makes the cache that it is called with."""

    def make_cache(self, policy: CachePolicy | None = None) -> Any:
        """An empty cache."""


@runtime_checkable
class Initialises(Protocol):
    """A module whose parameters start training from values of their own."""

    def initialise(self, key: mx.array) -> None:
        """Set its own parameters, random ones by `key`."""


@runtime_checkable
class Quantizable(Protocol):
    """A layer with a quantized form, as `mlx.nn.quantize` asks for it.

    Its `weight` is for type checkers: from Python 3.12 on, `isinstance` sees no parameters of a module, which keeps them in a
    dictionary.
    """

    if TYPE_CHECKING:
        weight: Any

    def to_quantized(
        self, group_size: int | None = None, bits: int | None = None, mode: str = "affine"
    ) -> Any:
        """The same layer with its weight packed."""


def modules_of(model: nn.Module) -> dict[str, nn.Module]:
    """Every module of a model by its path, "" for the model itself; one that is used twice has the first of its paths."""
    found: dict[str, nn.Module] = {}
    seen: set[int] = set()
    for path, module in sorted(model.named_modules(), key=lambda pair: address_order(pair[0])):
        if id(module) not in seen:
            seen.add(id(module))
            found[path] = module
    return found


def address_order(path: str) -> list[tuple[int, str]]:
    """The sort key of a path: layer 10 comes after layer 9."""
    return [(int(step), "") if step.isdecimal() else (-1, step) for step in path.split(".") if step]
