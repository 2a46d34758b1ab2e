"""Settings that a plugin declares for what it brings: their names, kinds, bounds and defaults. Imports no mlx."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any

from zoo.errors import PluginError, PromptError, did_you_mean
from zoo.frozen import Frozen, frozen

KINDS = (int, float, bool, str, dict, object)
NAME = re.compile(r"[a-z][a-z0-9_]*")


@frozen()
class Setting(Frozen):
    """One setting: its name in Python, its `kind`, its `default`, bounds and a line of help.

    The kind is int, float, bool, str, dict (a mapping, or a JSON object as text), or object, for what the strategy itself
    checks: a loaded model for example. A number is at least `minimum`, more than `above` and at most `maximum`. `choices`
    are the only values if there are any, `also` values that are allowed beside those of the kind. `several`: one value or
    a list of them. `file`: on the command line its value is the path of a file that holds it.
    """

    name: str
    kind: type
    default: Any = None
    minimum: float | None = None
    maximum: float | None = None
    help: str = ""
    choices: tuple[Any, ...] = ()
    also: tuple[Any, ...] = ()
    several: bool = False
    file: bool = False
    above: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not NAME.fullmatch(self.name):
            raise PluginError(
                f"setting {self.name!r}: a name is small letters, digits and '_', a letter first"
            )
        if self.kind not in KINDS:
            raise PluginError(
                f"setting {self.name}: kind {self.kind!r} is not int, float, bool, str, dict or object"
            )
        for field, values in (("choices", self.choices), ("also", self.also)):
            if not isinstance(values, tuple):
                raise PluginError(f"setting {self.name}: {field} is a tuple of values, not {values!r:.60}")
        if self.default is not None:
            try:
                self.checked(self.default)
            except PromptError as error:
                raise PluginError(f"setting {self.name}: its default: {error}") from None

    def checked(self, value: Any) -> Any:
        """The value in this setting's kind; PromptError, naming the setting, for another kind or out of bounds."""
        if not self.several:
            return self._checked(value)
        values = value if isinstance(value, list | tuple) else (value,)
        return tuple(self._checked(item) for item in values if item != "")

    def _checked(self, value: Any) -> Any:
        if any(type(value) is type(extra) and value == extra for extra in self.also):
            return value
        converted = self._converted(value)
        if converted is None or not self._within(converted):
            raise PromptError(f"`{self.name}` must be {self.expected}, got {value!r:.60}")
        if isinstance(converted, str):
            try:
                converted.encode()
            except UnicodeEncodeError:
                raise PromptError(f"`{self.name}` must hold no lone surrogate, got {value!r:.60}") from None
        return converted

    def _converted(self, value: Any) -> Any:
        """The value as this kind, numbers of other libraries as Python's; None when it is of another kind."""
        if self.kind is int:
            return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None
        if self.kind is float:
            try:
                return float(value) if isinstance(value, Real) and not isinstance(value, bool) else None
            except OverflowError:
                return None
        if self.kind is dict and isinstance(value, str):
            value = _object(value)
        if self.kind is dict and isinstance(value, Mapping):
            return dict(value)
        return value if isinstance(value, self.kind) else None

    def parsed(self, text: str) -> Any:
        """The value that a text spells, "0.5" or "true"; PromptError when it spells none of this kind."""
        spelled = {str(extra).lower(): extra for extra in self.also}
        if self.kind is bool:
            spelled |= {"true": True, "false": False}
        value: Any = text
        if text.lower() in spelled:
            value = spelled[text.lower()]
        elif self.kind in (int, float):
            try:
                value = self.kind(text)
            except ValueError:
                value = text
        return self._checked(value)

    def _within(self, value: Any) -> bool:
        if self.choices:
            return value in self.choices
        if self.kind not in (int, float) or value in self.also:
            return True
        return (
            math.isfinite(value)
            and (self.minimum is None or value >= self.minimum)
            and (self.above is None or value > self.above)
            and (self.maximum is None or value <= self.maximum)
        )

    @property
    def expected(self) -> str:
        """What a value must be, in words: "a whole number of at least 1"."""
        kind = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}.get(
            self.kind, "a JSON object" if self.kind is dict else "a value"
        )
        if self.choices:
            what = f"one of {', '.join(map(str, self.choices))}"
        else:
            limits = (("at least", self.minimum), ("more than", self.above), ("at most", self.maximum))
            bounds = [f"{words} {_shown(bound)}" for words, bound in limits if bound is not None]
            what = f"{kind}{' of ' if bounds else ''}{' and '.join(bounds)}"
        more = f"{what}{' or a list of them' if self.several else ''}"
        return f"{more}{''.join(f', or {str(extra).lower()}' for extra in self.also)}"


def _object(text: str) -> Any:
    """What a text of JSON holds; None for one that is no JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def _shown(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"


def checked_settings(owner: str, declared: Iterable[Setting], given: Mapping[str, Any]) -> dict[str, Any]:
    """The given settings, checked, and the defaults of the others; PromptError for one that is not declared.

    `owner` is what they belong to, for the message.
    """
    known = {setting.name: setting for setting in declared}
    for name in given:
        if name not in known:
            hint = did_you_mean(str(name), known, f"; it has {', '.join(known) or 'none'}")
            raise PromptError(f"{owner} has no setting {name!r}{hint}")
    values = {name: setting.checked(given[name]) for name, setting in known.items() if name in given}
    missing = next((n for n, setting in known.items() if n not in values and setting.default is None), None)
    if missing is not None:
        raise PromptError(f"{owner} needs its setting {missing}")
    return {name: setting.default for name, setting in known.items()} | values
