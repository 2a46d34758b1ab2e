"""Mismatches between a checkpoint's tensors and a model's parameters, in one line that shows both sides."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from zoo import weights
from zoo.checkpoint.quantized_matrix import QuantizedMatrix, is_float, join, parameter_matches
from zoo.checkpoint.safetensors import Tensors
from zoo.errors import similar_names
from zoo.recipe import Model
from zoo.weights import Rule

MOST = 4  # groups of each side that a message shows
LONGEST = 200  # characters that are shown of a name
CANDIDATES = 500  # names that are compared for a hint
NUMBER = re.compile(r"(?<![^.])[0-9]{1,9}(?![^.])")  # a step of a name that is a number
LETTERS = "ijklmnop"
HEAD = "head.output.weight"
UNTIED = "; if the embedding is the head, set tie_word_embeddings to true in config.json"


def _near(name: str, known: Mapping[str, str], what: str) -> str:
    """A hint with the nearest of the names, and what is said of it."""
    near = similar_names(name, list(known)[:CANDIDATES])
    return f" [{what}: {near[0]}{known[near[0]]}]" if near else ""


@dataclass(frozen=True)
class NameGroup:
    """Names that differ in their numbers alone, written with letters for these, and what is said of all of them."""

    names: tuple[str, ...]
    ranges: str
    what: str
    count: int

    @property
    def plural(self) -> str:
        return "s" if self.count > 1 else ""

    def __str__(self) -> str:
        name, *path = (n if len(n) <= LONGEST else f"{n[:LONGEST]}…" for n in self.names)
        details = [*(f"for {step}" for step in path if step != name), *([self.ranges] if self.ranges else [])]
        return f"{name} ({', '.join(details)}){self.what}" if details else f"{name}{self.what}"


def grouped(problems: Iterable[tuple[tuple[str, ...], str]]) -> list[NameGroup]:
    """The problems, those put together that differ in the numbers of their names alone."""
    alike: dict[tuple[tuple[str, ...], str, int], list[tuple[str, ...]]] = {}
    for names, what in problems:
        numbers = tuple(NUMBER.findall(names[0]))
        key = (tuple(NUMBER.sub("{}", name) for name in names), what, len(numbers))
        alike.setdefault(key, []).append(numbers)
    found = []
    for (names, what, _), rows in alike.items():
        columns = [sorted({int(number) for number in column}) for column in zip(*rows, strict=True)]
        letters = iter(LETTERS)
        steps = [str(column[0]) if len(column) == 1 else f"{{{next(letters)}}}" for column in columns]
        ranges = [f"{step[1:-1]} = {_range(c)}" for step, c in zip(steps, columns, strict=True) if len(c) > 1]
        filled = tuple(_filled(name, steps) for name in names)
        found.append(NameGroup(filled, ", ".join(ranges), what, len(rows)))
    return sorted(found, key=lambda group: group.names)


def _filled(name: str, steps: Sequence[str]) -> str:
    """The name with its open numbers as `steps` write them; a parameter's path may have fewer than its tensor."""
    given = iter(steps)
    return re.sub(r"(?<![^.])\{\}(?![^.])", lambda _: next(given, "{}"), name)


def _range(numbers: Sequence[int]) -> str:
    whole = len(numbers) == numbers[-1] - numbers[0] + 1
    return f"{numbers[0]}…{numbers[-1]}" if whole else f"{len(numbers)} of {numbers[0]}…{numbers[-1]}"


# Names (one, or a tensor's and a parameter's), and what is said of them.
Problem = tuple[tuple[str, ...], str]


def find_mismatches(
    wanted: Mapping[str, Any],
    found: Mapping[str, Any],
    left: Iterable[str],
    rules: Sequence[Rule],
    tensors: Tensors,
    recipe: Model,
) -> tuple[int, str]:
    """The number of mismatches between the parameters `found` and those `wanted`, and the line that shows them.

    Of three kinds: tensors of another shape or dtype, parameters that nothing fills, tensors that go nowhere.
    """
    origin = {}
    for name, array in tensors.arrays.items():
        for path in weights.apply(rules, {name: array}, recipe, join)[0]:
            origin[path] = name
    wrong: list[Problem] = []
    for path in wanted.keys() & found.keys():
        name = origin.get(path, path)
        if why := _why(wanted[path], found[path], tensors.dtypes.get(name)):
            wrong.append(((name, path), f": {why}"))
    missing: list[Problem] = [
        (
            (*_exported(path, wanted[path], rules, recipe), path),
            f" {tuple(wanted[path].shape)}{UNTIED if path.endswith(HEAD) else ''}",
        )
        for path in wanted.keys() - found.keys()
    ]
    unexpected: list[Problem] = [
        ((origin.get(path, path), path), f" {tuple(found[path].shape)}, and the model has no such parameter")
        for path in found.keys() - wanted.keys()
    ]
    unexpected += [((name,), f" {tuple(tensors.arrays[name].shape)}, which no rule takes") for name in left]
    # Beside each group stands the nearest name on the other side.
    strange = {group.names[0]: "" for group in grouped(unexpected)}
    ranges = {g.names[0]: g.ranges and f" ({g.ranges})" for g in grouped(((path,), "") for path in wanted)}
    sources = {rule.source: "" for rule in rules if hasattr(rule, "source")}  # a pattern, as most have

    def nearest(group: NameGroup) -> str:
        known, what = (ranges, "nearest") if len(group.names) > 1 else (sources, "nearest rule")
        return _near(group.names[-1], known, what)

    lines = [
        *_lines("", wrong, "of the kind", lambda group: ""),
        *_lines("missing ", missing, "missing", lambda group: _near(group.names[0], strange, "nearest")),
        *_lines("unexpected ", unexpected, "unexpected", nearest),
    ]
    return len(wrong) + len(missing) + len(unexpected), "; ".join(lines)


def _lines(kind: str, problems: list[Problem], what: str, near: Callable[[NameGroup], str]) -> Iterator[str]:
    """A phrase for each group of problems, at most `MOST`, and one with the number of the others."""
    groups = grouped(problems)
    yield from (f"{kind}tensor{group.plural} {group}{near(group)}" for group in groups[:MOST])
    if rest := sum(group.count for group in groups[MOST:]):
        yield f"and {rest} more {what}"


def _why(wanted: mx.array, found: mx.array | QuantizedMatrix, dtype: str | None) -> str | None:
    """The mismatch of a tensor with its parameter; None when there is none."""
    expected, shape = tuple(wanted.shape), tuple(found.shape)
    certain = not isinstance(found, QuantizedMatrix) or found.certain
    if not certain and not parameter_matches(wanted, found):
        words, scales = (tuple(getattr(found, part).shape) for part in ("weight", "scales"))
        return f"expected {expected}, found {words} words and {scales} scales"
    if expected != shape and certain:
        return f"expected shape {expected}, found {shape}"
    return None if is_float(found) else f"dtype {dtype or found.dtype} where a float belongs"


def _exported(path: str, array: mx.array, rules: Sequence[Rule], recipe: Model) -> list[str]:
    """The checkpoint's name of a parameter, or of the fused tensor that it is a part of; nothing for neither."""
    try:
        names = list(weights.invert(rules, {path: array}, recipe, join)[0])
    except KeyError:  # one part of several by itself
        names = []
    return (names or [name for rule in rules if (name := rule.holder(path))])[:1]
