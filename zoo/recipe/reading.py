"""Recipes from JSON: what `Spec.to_json` wrote, perhaps edited by hand, every field validated. Imports no mlx."""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

from zoo.config import MOST_LAYERS
from zoo.errors import RecipeError, did_you_mean
from zoo.recipe.spec import Spec

DEEPEST = 16  # specs within specs: far more than any model has, far less than Python's stack

SpecOf = Callable[[str], type[Spec]]  # from "mixer/attention" to its spec; RecipeError where there is none


def from_json(value: object, spec_of: SpecOf, path: str = "", *, _depth: int = 0) -> Spec:
    """The spec that a JSON object describes; `spec_of` gives the class of a block such as "mixer/attention".

    Fields that have a default may be left out. RecipeError, which starts with the path of the field
    ("layers.3.mixer.heads: …"), for an unknown block or field, a missing field, a wrong type, a value out of bounds and
    an impossible combination. `path` is that of the object itself.
    """
    if not isinstance(value, Mapping):
        raise _error(path, f"expected an object with a block, got {reprlib.repr(value)}")
    if _depth > DEEPEST:
        raise _error(path, f"lies more than {DEEPEST} blocks deep")
    if not isinstance(value.get("block"), str):
        why = "is missing" if "block" not in value else f"expected text, got {reprlib.repr(value['block'])}"
        raise _error(_below(path, "block"), why)
    try:
        cls = spec_of(value["block"])
    except RecipeError as error:
        raise _error(_below(path, "block"), str(error)) from None
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    values = {}
    for name, given in value.items():
        if name == "block":
            continue
        if name not in fields:
            hint = did_you_mean(name, fields, f"; its fields: {', '.join(fields)}")
            raise _error(_below(path, name), f"{cls.block()} has no such field{hint}")
        values[name] = _value(given, spec_of, _below(path, name), _depth + 1)
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in values:
            raise _error(_below(path, name), f"is missing from {cls.block()}")
    try:
        return cls(**values)
    except RecipeError as error:  # its message starts with a field of the spec
        raise RecipeError(_below(path, str(error))) from None
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:  # a plugin's own check
        raise _error(path, f"{cls.block()}: {error}") from error


def _value(value: object, spec_of: SpecOf, path: str, depth: int) -> Any:
    if isinstance(value, Mapping):
        return from_json(value, spec_of, path, _depth=depth)
    if not isinstance(value, list):
        return value
    if depth > DEEPEST:
        raise _error(path, f"lies more than {DEEPEST} lists deep")
    found: list[Any] = []
    for item in value:
        count = 1
        if isinstance(item, Mapping) and "repeat" in item and "block" not in item:
            count, item = _repeated(item, f"{path}.{len(found)}")
        if len(found) + count > MOST_LAYERS:
            raise _error(path, f"holds more than {MOST_LAYERS}")
        found += [_value(item, spec_of, f"{path}.{len(found)}", depth)] * count
    return tuple(found)


def _repeated(item: Mapping[str, Any], path: str) -> tuple[int, Any]:
    count = item["repeat"]
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise _error(f"{path}.repeat", f"expected a whole number above zero, got {reprlib.repr(count)}")
    if set(item) != {"repeat", "layer"}:
        raise _error(path, f'expected "repeat" and "layer", got {", ".join(map(repr, item))}')
    return count, item["layer"]


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _error(path: str, why: str) -> RecipeError:
    return RecipeError(f"{path or 'recipe'}: {why}")
