"""Facts of a recipe, read off its fields: sizes, choices, parameters, cache bytes. Imports no mlx.

Nothing here knows a family: a third party's specs are described like the zoo's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from zoo.architecture import Architecture, Preset
from zoo.checkpoint.source import split_preset
from zoo.config import Config
from zoo.errors import SourceError
from zoo.host.registry import Registry
from zoo.recipe import Spec

CACHED_BYTES = 2  # a number in a KV cache kept in a 16-bit float, as on a GPU
STATE_BYTES = 4  # one in a recurrent state, in float32: every token adds to the same number


def described(name: str, registry: Registry) -> tuple[Architecture, Preset, Any]:
    """The architecture, preset and recipe of "llama" (its full-size preset) or "llama:pocket".

    SourceError when there is no such preset, or it carries no numbers.
    """
    plain, wanted = split_preset(name)
    architecture = registry.architecture(plain)
    preset = architecture.preset(wanted) if wanted else architecture.full_size or architecture.preset()
    if not architecture.presets:
        raise SourceError(f"{architecture.name} has no numbers of its own: give the folder of a checkpoint")
    if preset is None or preset.config is None:
        has = ", ".join(p.name for p in architecture.presets if p.config) or "none"
        what = f"preset {wanted!r}" if wanted else "preset"
        raise SourceError(f"{name}: {architecture.name} has no {what} with numbers; it has: {has}")
    return architecture, preset, architecture.recipe(Config(preset.config))


def facts(recipe: Any) -> dict[str, str]:
    """The fields and sums of a recipe as text: "layer.mixer.heads" -> "32". Equal layers are one row, others by number."""
    rows = {"parameters": amount(recipe.parameters(recipe.dim))}
    if (active := recipe.active_parameters(recipe.dim)) != recipe.parameters(recipe.dim):
        rows["parameters a token uses"] = amount(active)
    rows["cache per token"] = f"{amount(recipe.cached(recipe.dim) * CACHED_BYTES)}B"
    if state := recipe.state_size(recipe.dim):
        rows["cache at any length"] = f"{amount(state * STATE_BYTES)}B"
    for path, values in _merged(recipe).items():
        rows[path] = _summary(values)
    return rows


def _merged(recipe: Any) -> dict[str, list[tuple[int, str]]]:
    """Each field's values with the number of consecutive layers that have them."""
    merged: dict[str, list[tuple[int, str]]] = {}
    for path, value in _fields(recipe, ""):
        steps = path.split(".")
        named = [_singular(*pair) for pair in zip(steps, [*steps[1:], ""], strict=True)]
        runs = merged.setdefault(".".join(step for step in named if not step.isdigit()), [])
        if runs and runs[-1][1] == value:
            runs[-1] = (runs[-1][0] + 1, value)
        else:
            runs.append((1, value))
    return merged


def _singular(step: str, after: str) -> str:
    return step.removesuffix("s") if after.isdigit() else step


def _fields(spec: Spec, path: str) -> Iterator[tuple[str, str]]:
    """Every field below a spec as (path, value); a field that holds a spec is shown as that spec's name."""
    for name, value in spec.shown_fields():
        below = f"{path}.{name}" if path else name
        if isinstance(value, Spec):
            yield below, value.name
            yield from _fields(value, below)
        elif isinstance(value, tuple) and value and isinstance(value[0], Spec):
            yield below, str(len(value))
            for index, part in enumerate(value):
                yield f"{below}.{index}", part.name
                yield from _fields(part, f"{below}.{index}")
        else:
            yield below, _word(value)


def _word(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _summary(runs: list[tuple[int, str]]) -> str:
    """One value when all are the same; else how many of each, and in which order when that is short."""
    if len({value for _, value in runs}) == 1:
        return runs[0][1]
    if len(runs) <= 3:
        return ", ".join(f"{value} ×{count}" for count, value in runs)
    counts: dict[str, int] = {}
    for count, value in runs:
        counts[value] = counts.get(value, 0) + count
    return ", ".join(f"{value} ×{count}" for value, count in counts.items()) + " in turn"


def amount(number: int) -> str:
    """A count in three digits and a unit: 1.24 G."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number} "


def comparison(columns: Mapping[str, Mapping[str, str]]) -> list[tuple[str, list[str], bool]]:
    """Rows of (field, a value for each column, whether they differ), in the order in which fields appear."""
    names: list[str] = []
    for column in columns.values():
        # A field that only this column has goes where it stands among its neighbours.
        index = 0
        for name in column:
            if name in names:
                index = names.index(name) + 1
            else:
                names.insert(index, name)
                index += 1
    rows = []
    for name in names:
        values = [column.get(name, "–") for column in columns.values()]
        rows.append((name, values, len(set(values)) > 1))
    return rows
