"""`Setting`: the name, kind, bounds and default of one setting, and the check of its values. Imports no mlx.

A plugin declares settings of its own for what it brings.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from numbers import Integral, Real
from typing import Any

from zoo.errors import PluginError, PromptError, did_you_mean
from zoo.frozen import Frozen, frozen

MOST = 2**31 - 1  # MLX counts in 32 bits
HUGE = 1e30
# Each kind of value, in words.
KINDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    dict: "a JSON object",
    tuple: "a list",
    Callable: "a function",
    object: "a value",
}
NAME = re.compile(r"[a-z][a-z0-9_]*")


@frozen()
class Setting(Frozen):
    """One setting: its name in Python, its `kind`, its `default`, bounds and a line of help.

    The kind is int, float, bool, str, dict (a mapping, or a JSON object as text), tuple (a value of each of `items`, as
    text with commas between them), Callable, or object, for what the strategy itself checks: a loaded model for example.
    A number is at least `minimum`, more than `above` and at most `maximum`. `choices` are the only values if there are
    any, `also` values that are allowed beside those of the kind. `several`: one value or a list of them. `file`: on the
    command line its value is the path of a file that holds it. `metavar` is what the help of a command calls the value.
    """

    name: str
    kind: Any
    default: Any = None
    minimum: float | None = None
    maximum: float | None = None
    help: str = ""
    choices: tuple[Any, ...] = ()
    also: tuple[Any, ...] = ()
    several: bool = False
    file: bool = False
    above: float | None = None
    items: tuple[Setting, ...] = ()
    metavar: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not NAME.fullmatch(self.name):
            raise PluginError(
                f"setting {self.name!r}: a name is small letters, digits and '_', a letter first"
            )
        if self.kind not in KINDS:
            raise PluginError(
                f"setting {self.name}: kind {self.kind!r} is not int, float, bool, str, dict, tuple, Callable or object"
            )
        if (self.kind is tuple) != bool(self.items):
            raise PluginError(f"setting {self.name}: items are those of the kind tuple, which needs them")
        for field, values in (("choices", self.choices), ("also", self.also)):
            if not isinstance(values, tuple):
                raise PluginError(f"setting {self.name}: {field} is a tuple of values, not {values!r:.60}")
        if self.default is not None:
            try:
                self.checked(self.default)
            except PromptError as error:
                raise PluginError(f"setting {self.name}: its default: {error}") from None

    def parsed(self, text: str) -> Any:
        """The value of a text, "0.5" or "true"; PromptError when it is not of this kind."""
        words = {str(extra).lower(): extra for extra in self.also}
        if self.kind is bool:
            words |= {"true": True, "false": False}
        value: Any = words.get(text.lower(), text)
        with suppress(PromptError, ValueError):
            if value is text and self.kind in (int, float):
                value = self.kind(text)
            elif self.kind is tuple:
                parts = zip(self.items, text.strip("[]").split(","), strict=True)
                value = tuple(item.parsed(part.strip()) for item, part in parts)
        return self.checked(value, single=True)

    def checked(self, value: Any, single: bool = False) -> Any:
        """The value in this setting's kind, numbers of other libraries as Python's; with `single`, one of `several`.

        PromptError, naming the setting, for a value of another kind or out of bounds.
        """
        if self.several and not single:
            values = value if isinstance(value, list | tuple) else (value,)
            return tuple(self.checked(one, single=True) for one in values if one != "")
        if any(type(value) is type(extra) and value == extra for extra in self.also):
            return value
        converted: Any = None
        with suppress(PromptError, OverflowError, TypeError, ValueError):
            if self.kind in (int, float):
                if isinstance(value, Integral if self.kind is int else Real) and not isinstance(value, bool):
                    converted = self.kind(value)
            elif self.kind is tuple:
                converted = tuple(item.checked(part) for item, part in zip(self.items, value, strict=True))
            elif self.kind is dict:
                converted = json.loads(value) if isinstance(value, str) else value
                converted = dict(converted) if isinstance(converted, Mapping) else converted
                if not (isinstance(converted, dict) or any(converted is extra for extra in self.also)):
                    converted = None
            elif isinstance(value, self.kind):
                converted = value
        if self.choices:
            fits = converted in self.choices
        else:
            fits = (
                self.kind not in (int, float)
                or converted in (None, *self.also)
                or (
                    math.isfinite(converted)
                    and (self.minimum is None or converted >= self.minimum)
                    and (self.above is None or converted > self.above)
                    and (self.maximum is None or converted <= self.maximum)
                )
            )
        if converted is None or not fits:
            raise PromptError(f"`{self.name}` must be {self._expected(converted)}, got {value!r:.60}")
        if isinstance(converted, str):
            try:
                converted.encode()
            except UnicodeEncodeError:
                raise PromptError(f"`{self.name}` must hold no lone surrogate, got {value!r:.60}") from None
        return converted

    @property
    def expected(self) -> str:
        """What a value must be, in words: "a whole number of at least 1"."""
        return self._expected()

    def _expected(self, given: object = None) -> str:
        """What a value must be: "a whole number of at least 1, or true".

        A bound of arithmetic, such as the largest number of 32 bits, is left out unless the `given` value breaks it.
        """
        kind, also = KINDS[self.kind], self.also
        if self.kind is tuple:
            kind += f" of {' and '.join(f'{item.name} ({item.expected})' for item in self.items)}"
        if self.choices:
            what = f"one of {', '.join(map(str, self.choices))}"
        else:
            number, least, most = given if isinstance(given, int | float) else 0, self.minimum, self.maximum
            if least is not None and 0 < least <= 1 / HUGE and 0 in also and number <= 0:
                least, also = 0, ()
            if most is not None and number <= most >= MOST:
                most = None
            if least is not None and most is not None and self.above is None:
                what = f"{kind} from {_written(least)} to {_written(most)}"
            else:
                limits = (("at least", least), ("more than", self.above), ("at most", most))
                bounds = [f"{words} {_written(bound)}" for words, bound in limits if bound is not None]
                what = f"{kind}{' of ' if bounds else ''}{' and '.join(bounds)}"
        what += " or a list of them" if self.several else ""
        return f"{what}{''.join(f', or {str(extra).lower()}' for extra in also)}"


def _written(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"


def count_setting(name: str, help: str, minimum: int = 0, maximum: int = MOST, **more: Any) -> Setting:
    """A setting that is a whole number."""
    return Setting(name, int, minimum=minimum, maximum=maximum, help=help, **more)


def number_setting(
    name: str, help: str, maximum: float = 1, minimum: float | None = 0, **more: Any
) -> Setting:
    """A setting that is a number from `minimum` to `maximum`."""
    return Setting(name, float, minimum=minimum, maximum=maximum, help=help, **more)


def checked_settings(
    owner: str, declared: Iterable[Setting], given: Mapping[str, Any], complete: bool = True
) -> dict[str, Any]:
    """The given settings, checked, and the defaults of the others; PromptError for one that is not declared.

    `owner` is what they belong to, for the message. With `complete`, one that has no default must be given; otherwise it
    may be left out.
    """
    known = {setting.name: setting for setting in declared}
    for name in given:
        if name not in known:
            hint = did_you_mean(str(name), known, f"; it has {', '.join(known) or 'none'}")
            raise PromptError(f"{owner} has no setting {name!r}{hint}")
    values = {name: setting.checked(given[name]) for name, setting in known.items() if name in given}
    missing = next((n for n, setting in known.items() if n not in values and setting.default is None), None)
    if complete and missing is not None:
        raise PromptError(f"{owner} needs its setting {missing}")
    defaults = {name: setting.default for name, setting in known.items() if setting.default is not None}
    return defaults | values
