"""The change by which a new architecture without a block of its own differs from its base. Imports no mlx."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from zoo.config import Config
from zoo.recipe import EncoderDecoder


@dataclass(frozen=True)
class Change:
    """One change: a number that the config may have under `key`, `value` in the preset for tests.

    `name` is that of its part in the templates, `summary` describes an architecture that has it.
    """

    name: str
    key: str
    value: float
    summary: str


EXPERTS = Change("experts", "routed_scaling_factor", 2.5, "the weights of its experts multiplied by a number")
ATTENTION = Change(
    "attention", "attention_multiplier", 0.5, "a number of its own that multiplies attention's scores"
)
EMBEDDING = Change("embedding", "embedding_multiplier", 12.0, "its embeddings multiplied by a number")


def change_of(recipe: Callable[[Config], Any], numbers: Mapping[str, Any]) -> Change:
    """The first change that has an effect on the base's recipe, and whose key the base does not read."""
    base = recipe(Config(numbers))
    for change, applies in ((EXPERTS, has_scaled_router), (ATTENTION, normalises_embeddings)):
        config = Config({**numbers, change.key: change.value})
        recipe(config)
        if applies(base) and change.key in config.unread():
            return change
    return EMBEDDING


def has_scaled_router(recipe: Any) -> bool:
    """Whether a layer has a router whose weights are multiplied by a number."""
    routers = (dict(part.parts()).get("router") for _, part in recipe.walk())
    return any(hasattr(router, "scale") for router in routers if router is not None)


def normalises_embeddings(recipe: Any) -> bool:
    """Whether a norm after the embedding undoes its scale, and attention's scale is the usual one."""
    side = recipe.encoder if isinstance(recipe, EncoderDecoder) else recipe
    return side.embedding.norm is not None and all(
        getattr(layer.mixer, "scale", 1.0) is None for layer in recipe.layers
    )
