"""The kinds of block that a new plugin can have, and where a recipe has each. Imports no mlx."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from zoo_new.plugin_names import ScaffoldError


@dataclass(frozen=True)
class BlockKind:
    """One kind of block.

    `suffix` ends the name of its class, and `summary` describes the example of it. `change` describes how an
    architecture that has it differs from its base, `plain` what it has where there is no base. `path` is the field of
    the recipe that holds it, of each layer where it begins with "layers", which the base must have. `numbers` go into the
    config. `specs` are the names of `zoo.recipe` that an example without a base needs beside `Spec`.
    """

    suffix: str
    summary: str
    change: str
    plain: str
    path: str
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
        "a mixer of its own instead of attention",
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


def check_base_takes(name: str, recipe: Any, block: str) -> None:
    """Raise ScaffoldError unless the recipe of the base `name` can take this kind of block."""
    if block == "norm":
        if recipe.embedding.norm is not None:
            raise ScaffoldError(f'`base="{name}"`: its embedding has a norm already')
        return
    steps = BLOCKS[block].path.split(".")[1:]
    if not any(has(layer, steps) for layer in recipe.layers):
        raise ScaffoldError(f'`base="{name}"`: its layers have no {steps[-1]} that the block could replace')


def has(part: Any, steps: list[str]) -> bool:
    """Whether a spec has the part, or the part of a part, that `steps` name."""
    for step in steps:
        part = dict(part.parts()).get(step)
        if part is None:
            return False
    return True
