"""The kinds of block that a new plugin can have, and how a recipe takes each. Imports no mlx."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from zoo.errors import ScaffoldError


@dataclass(frozen=True)
class BlockKind:
    """A kind of block: how its class's name ends, what the example of it is, and where it goes.

    `change` says, of an architecture that has it, what is other than in its base, and `plain` what it has where there is
    no base; `place` is the field that it stands
    in, of a layer where the path begins with "layers", which the base must have. `numbers` go into the config. `specs`
    are the names of `zoo.recipe` that an example without a base needs beside `Spec`.
    """

    suffix: str
    summary: str
    change: str
    plain: str
    place: str
    specs: tuple[str, ...]
    numbers: dict[str, Any] = field(default_factory=dict)


COMMON = ("Decoder", "Embedding", "Head", "Layer", "repeat")
BLOCKS = {
    "norm": BlockKind(
        "Norm",
        "one gain for all features",
        "a norm of its own after the embedding",
        "norms of its own",
        "embedding.norm",
        (*COMMON, "Attention", "GatedMLP", "RoPE"),
    ),
    "mixer": BlockKind(
        "Mixer",
        "attention whose scores fall with the distance",
        "a mixer of its own in the place of attention",
        "a mixer of its own",
        "layers.mixer",
        (*COMMON, "GatedMLP", "RMSNorm"),
    ),
    "feedforward": BlockKind(
        "FeedForward",
        "a gated feed-forward without an activation",
        "a feed-forward of its own",
        "a feed-forward of its own",
        "layers.feedforward",
        (*COMMON, "Attention", "RMSNorm", "RoPE"),
    ),
    "router": BlockKind(
        "Router",
        "experts chosen by sigmoid scores",
        "a router of its own",
        "experts and a router of its own",
        "layers.feedforward.router",
        (*COMMON, "Attention", "Experts", "MoE", "RMSNorm", "RoPE"),
        dict(num_experts=4, num_experts_per_tok=2),
    ),
}


def refuse_without_place(name: str, recipe: Any, block: str) -> None:
    """ScaffoldError unless the recipe of the base `name` has the place of this kind of block, free where it is a norm's."""
    if block == "norm":
        if recipe.embedding.norm is not None:
            raise ScaffoldError(
                f'`base="{name}"`: its embedding has a norm, in whose place the block would stand'
            )
        return
    steps = BLOCKS[block].place.split(".")[1:]
    if not any(has(layer, steps) for layer in recipe.layers):
        raise ScaffoldError(
            f'`base="{name}"`: its layers have no {steps[-1]}, in whose place the block would stand'
        )


def has(part: Any, steps: list[str]) -> bool:
    """Whether a spec has the field, or the field of a field, that `steps` lead to."""
    for step in steps:
        part = getattr(part, step, None)
    return part is not None
