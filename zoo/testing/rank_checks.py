"""The checks of models that are divided among ranks, which are threads here: together they are the whole model."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from zoo.compiled_step import compiled_step
from zoo.errors import RecipeError
from zoo.recipe import Division, Share
from zoo.recipe.pipeline import division_of
from zoo.recipe.spec import Spec
from zoo.runtime import ranks
from zoo.testing import cache_checks, model_checks, subjects
from zoo.testing.subjects import LENGTH, QUANTIZATION, Subject, answer, same
from zoo.testing.threads import run_ranks

RANKS = (2, 4)


def divisions(subject: Subject, group: int = 1, way: str = "tensor") -> Iterator[list[Division]]:
    """What each of 2 and of 4 ranks has of the model, for those numbers of ranks among which it can be divided."""
    for count in RANKS:
        try:
            yield [division_of(subject.recipe, way, Share(rank, count, group)) for rank in range(count)]
        except RecipeError:
            continue


def is_divided(subject: Subject, group: int = 1, way: str = "tensor") -> bool:
    """Whether some part of the model, of floats and small enough to be saved, can be divided among ranks in this way."""
    packed = any("scales" in layer for _, layer in subject.model.named_modules())
    return (
        not packed
        and subjects.is_saved(subject)
        and any(parts[0].cuts for parts in divisions(subject, group, way))
    )


def has_experts_divided(subject: Subject) -> bool:
    """Whether the experts of the model can be divided among ranks: it has some, and `is_divided` holds for them."""
    return is_divided(subject, way="experts")


def is_staged(subject: Subject) -> bool:
    """Whether the layers of the model, small enough to be saved, can be divided among ranks."""
    return subjects.is_saved(subject) and any(divisions(subject, way="pipeline"))


def is_divided_packed(subject: Subject) -> bool:
    """Whether it can be divided by whole groups of packed numbers."""
    return subjects.can_be_quantized(subject) and is_divided(subject, QUANTIZATION.group_size)


def shares_make_up_the_whole(subject: Subject) -> None:
    """Every parameter must be on some rank, and what the ranks have and do be counted by their recipes."""
    sizes = {path: array.shape for path, array in tree_flatten(subject.model.parameters())}
    for parts in (*divisions(subject), *divisions(subject, way="experts")):
        copies = {path: copies_of(path, shape, parts) for path, shape in sizes.items()}
        counted = sum(part.spec.parameters(subject.recipe.dim) for part in parts)
        numbers_held = sum(math.prod(sizes[path]) * copies[path] for path in sizes)
        assert counted == numbers_held, (
            f"{len(parts)} ranks: the recipes count {counted:,} parameters, {int(numbers_held):,} are held"
        )
        check_sums(subject.recipe, [part.spec for part in parts], subject.recipe.dim, copies)


def copies_of(path: str, shape: tuple[int, ...], parts: list[Division]) -> Fraction:
    """On how many ranks each number of a parameter is, on average. AssertionError for one that is on none."""
    cuts = [part.cuts[path] for part in parts if path in part.cuts]
    if not cuts:
        return Fraction(len(parts))
    axis = cuts[0].axis
    assert len(cuts) == len(parts) and {cut.axis for cut in cuts} == {axis}, (
        f"{path}: is not cut on all ranks alike"
    )
    ranges = [span for cut in cuts for span in cut.ranges]
    end = 0
    for first, last in sorted(set(ranges)):  # those of keys and values may overlap
        assert first <= end < last, f"{path}: the ranks have {sorted(set(ranges))} of {shape[axis]}"
        end = last
    assert end == shape[axis], f"{path}: the ranks have {sorted(set(ranges))} of {shape[axis]}"
    return Fraction(sum(last - first for first, last in ranges), shape[axis])


def check_sums(
    whole: Spec, parts: list[Spec], dim: int, copies: Mapping[str, Fraction], path: str = ""
) -> None:
    """AssertionError unless the ranks' `parts` of a spec compute and cache what the whole does, and what they have twice again."""
    name = path and f"{path}."
    matrices = [spec.matrices(dim) for spec in (whole, *parts)]
    for matrix, *own in zip(*matrices, strict=True):
        found, factor = sum(part.flops for part in own), copies.get(f"{name}{matrix.name}.weight", len(parts))
        assert found == matrix.flops * factor, (
            f"{name}{matrix.name}: {found:,} operations of {matrix.flops:,}"
        )
    factors = {
        1,
        len(parts),
        copies.get(f"{name}key.weight", 1),
    }  # keys are repeated where there are fewer than ranks
    for what, count in COUNTS.items():
        one, *others = (count(spec, dim) for spec in (whole, *parts))
        assert sum(others) in {one * factor for factor in factors}, f"{path}: {what}: {others} of {one}"
    below = [dict(spec.children()) for spec in (whole, *parts)]
    for child, spec in below[0].items():
        width = whole.width(child.partition(".")[0], dim)
        check_sums(spec, [own[child] for own in below[1:]], width, copies, f"{name}{child}")


COUNTS: dict[str, Callable[[Spec, int], int]] = {
    "operations on what is no matrix": lambda spec, dim: (
        spec.own_flops(dim, LENGTH) - sum(matrix.flops for matrix in spec.matrices(dim))
    ),
    "cached numbers a token": lambda spec, dim: spec.kv_cache_size(dim) if spec.remembers else 0,
    "numbers of state": lambda spec, dim: spec.state_size(dim) if spec.remembers else 0,
}


def ranks_compute_what_one_does(subject: Subject) -> None:
    """A model that is divided among ranks must give the logits of the whole one, from its caches and step too."""
    compare_floats(subject, "tensor")


def stages_compute_what_one_does(subject: Subject) -> None:
    """A model of whose layers each rank has some must give the logits of the whole one, from its caches and step too."""
    compare_floats(subject, "pipeline")


def experts_compute_what_one_does(subject: Subject) -> None:
    """A model whose experts are divided among ranks must give the logits of the whole one, from its caches and step too.

    Packed, where it can be.
    """
    packs = subjects.can_be_quantized(subject) and any(divisions(subject, QUANTIZATION.group_size, "experts"))
    compare_packed(subject, "experts") if packs else compare_floats(subject, "experts")


def packed_ranks_compute_what_one_does(subject: Subject) -> None:
    """A quantized model is divided by whole groups of packed numbers."""
    compare_packed(subject, "tensor")


def compare_floats(subject: Subject, way: str) -> None:
    """Divide a model among ranks by tensor, pipeline or experts (`way`), and `compare` the ranks with the whole model."""
    with tempfile.TemporaryDirectory() as folder:
        compare(subject, subject.model, Path(folder), way)


def compare_packed(subject: Subject, way: str) -> None:
    """Quantize a model, divide it by tensor, pipeline or experts (`way`), and `compare` the ranks with the whole model."""
    with tempfile.TemporaryDirectory() as folder:
        model = subjects.packed_model(subject, Path(folder, "plain"))
        compare(subject, model, Path(folder, "packed"), way, QUANTIZATION.group_size)


def pieces_equal_the_whole(subject: Subject) -> None:
    """A prompt read in two pieces, then two single tokens, must give the logits of a full forward."""
    length = subject.tokens.shape[1]
    cuts = (length // 2, length - 2, length - 1)
    found = cache_checks.logits_in_pieces(subject, subject.tokens, cuts)
    same(found, subject.model(subject.tokens), "logits")


# The checks that each rank must pass. They run on 2 and on 4 ranks for each model, so the cache is checked in few pieces.
HELD: tuple[tuple[Callable[[Subject], None], Callable[[Subject], bool]], ...] = (
    (cache_checks.caches_hold_what_the_recipe_counts, subjects.writes),
    (pieces_equal_the_whole, subjects.is_causal),
    (
        model_checks.padded_row_equals_the_row_alone,
        lambda s: subjects.decodes(s) and "left" in s.model.padding,
    ),
    (model_checks.cached_decode_equals_full_forward, subjects.translates),
    (model_checks.padded_text_equals_the_text_alone, lambda s: not s.model.decodes),
    (
        cache_checks.compiled_step_equals_the_model,
        lambda s: subjects.writes(s) and compiled_step(s.model) is not None,
    ),
)


def compare(subject: Subject, model: nn.Module, folder: Path, way: str, group: int = 1) -> None:
    """Hold the ranks of `model`, once it is saved into `folder`, to the logits of all, and each to the checks of a model."""
    subjects.save_model(subject, model, folder)
    expected = answer(subject, subjects.load_model(subject, folder).model)
    mx.eval(expected)

    def run() -> None:
        loaded = subjects.load_model(subject, folder, parallel=way)
        assert loaded.division is not None
        ranked = replace(subject, model=loaded.model, recipe=loaded.division.spec)
        same(answer(ranked), expected, f"logits of {ranks.size()} ranks")
        for check, applies in HELD:
            if applies(ranked):
                check(ranked)

    for parts in divisions(subject, group, way):
        run_ranks(len(parts), run)
