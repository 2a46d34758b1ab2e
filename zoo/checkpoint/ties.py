"""Ties that a checkpoint contradicts: it holds other numbers for a matrix than for the table that its config ties it to.

The numbers count, as in transformers 5: the matrix is then one of its own. Equal ones stay tied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import mlx.core as mx

from zoo import weights
from zoo.checkpoint.checkpoint import Checkpoint
from zoo.checkpoint.quantized_matrix import as_array, join
from zoo.checkpoint.safetensors import Tensors
from zoo.errors import CheckpointError, ZooError, warn
from zoo.recipe import EncoderDecoder, Model

ROWS = 4096  # of two matrices that are compared at once


def recipe_of(checkpoint: Checkpoint) -> Any:
    """The recipe that the checkpoint loads as; that of its config alone where there are no weights, or none that can be opened."""
    try:
        tensors = checkpoint.tensors()
    except ZooError:
        return checkpoint.architecture.recipe_of(checkpoint.config_of())
    config = checkpoint.config_of(tensors.arrays)
    return break_ties(checkpoint.architecture.recipe_of(config), checkpoint, tensors)


def break_ties(recipe: Model, checkpoint: Checkpoint, tensors: Tensors) -> Model:
    """The recipe, untied where the tensors hold other numbers for its head, or for its decoder's table. Warns of each.

    CheckpointError where a decoder's table differs from the encoder's, and a head is tied to both.
    """
    layouts = checkpoint.architecture.layouts_of(tensors.metadata.get("format"))
    heads = [r.source for rules in layouts.values() for r in rules if isinstance(r, weights.OutputHead)]
    name = checkpoint.origin.name
    pair = isinstance(recipe, EncoderDecoder)
    shares = isinstance(recipe, EncoderDecoder) and recipe.decoder.embedding.shared
    head, table = ("decoder.head", "decoder.embedding") if pair else ("head", "embedding")
    table = "encoder.embedding" if shares else table
    tied = bool(getattr(recipe.head, "tied", False))
    if tied and any(True for source in heads for _ in weights.matches(source, tensors.arrays)):
        own: Any = {"head": {"tied": False}}
        untied = recipe.change(decoder=own) if pair else recipe.change(**own)
        if _differ(untied, checkpoint, f"{head}.output.weight", f"{table}.tokens.weight"):
            warn(f"{name}: ties the head to the embedding, but the weights hold another head, which is used")
            recipe, tied = untied, False
    if shares:
        apart = recipe.change(decoder={"embedding": {"shared": False}})
        if _differ(apart, checkpoint, "decoder.embedding.tokens.weight", "encoder.embedding.tokens.weight"):
            if tied:
                raise CheckpointError(
                    f"{checkpoint.path}: holds different tables for source and target, and no head, "
                    f"where {name} makes all three one"
                )
            warn(f"{name}: makes one table of two, but the weights hold two that differ, which are used")
            recipe = apart
    return recipe


def untied_values(recipe: Model, checkpoint: Checkpoint, tensors: Tensors) -> dict[str, bool]:
    """The value of a config that says that the head is not tied, where the recipe of that config is this one; else none."""
    values = {"tie_word_embeddings": False}
    with suppress(ZooError):
        config = checkpoint.config_of(tensors.arrays).replaced(**values)
        if checkpoint.architecture.recipe_of(config) == recipe:
            return values
    return {}


def _differ(recipe: Model, checkpoint: Checkpoint, parameter: str, table: str) -> bool:
    """Whether the checkpoint has both parameters of this recipe, and their numbers differ."""
    tensors = checkpoint.tensors()
    wanted = {parameter, table}
    for rules in checkpoint.architecture.layouts_of(tensors.metadata.get("format")).values():

        def run_rules(arrays: Mapping[str, Any], rules: Sequence[weights.Rule] = rules) -> Mapping[str, Any]:
            return weights.apply(rules, arrays, recipe, join)[0]

        try:
            if wanted <= run_rules(tensors.arrays).keys():
                names = [
                    name for name, array in tensors.arrays.items() if wanted & run_rules({name: array}).keys()
                ]
                parameters = run_rules(checkpoint.read(None, names).arrays)
                return not _equal(parameters[parameter], parameters[table])
        except (ZooError, AttributeError, TypeError, ValueError):  # named when all tensors are matched
            continue
    return False


def _equal(first: Any, second: Any) -> bool:
    """Whether two matrices (O, I), packed or not, hold the same numbers. Rows are read until some differ."""
    if tuple(first.shape) != tuple(second.shape):
        return False
    parts = (slice(start, start + ROWS) for start in range(0, first.shape[0], ROWS))
    return all(mx.array_equal(*(as_array(matrix[rows]) for matrix in (first, second))) for rows in parts)
