"""Settings that a plugin declares for what it brings: their names, kinds, bounds and defaults. Imports no mlx."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from zoo.errors import PluginError, PromptError

KINDS = (int, float, bool, str)
NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Setting:
    """One setting: its name in Python, `kind` (int, float, bool or str), `default`, bounds and a line of help.

    `minimum` and `maximum` are the least and largest number that it may be.
    """

    name: str
    kind: type
    default: Any = None
    minimum: float | None = None
    maximum: float | None = None
    help: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not NAME.fullmatch(self.name):
            raise PluginError(
                f"setting {self.name!r}: a name is small letters, digits and '_', a letter first"
            )
        if self.kind not in KINDS:
            raise PluginError(f"setting {self.name}: kind {self.kind!r} is not int, float, bool or str")
        if self.default is not None:
            try:
                self.checked(self.default)
            except PromptError as error:
                raise PluginError(f"setting {self.name}: its default: {error}") from None

    def checked(self, value: Any) -> Any:
        """The value, of this setting's kind; PromptError, naming the setting, when it is another or out of bounds."""
        if self.kind is float and type(value) is int:
            value = float(value)
        if type(value) is not self.kind or not self._within(value):
            raise PromptError(f"{self.name}: expected {self._expected()}, got {value!r}")
        return value

    def parsed(self, text: str) -> Any:
        """The value that a text spells, "0.5" or "true"; PromptError when it spells none of this kind."""
        words = {"true": True, "false": False}
        try:
            value = words[text.lower()] if self.kind is bool else self.kind(text)
        except (KeyError, ValueError):
            raise PromptError(f"{self.name}: expected {self._expected()}, got {text!r}") from None
        return self.checked(value)

    def _within(self, value: Any) -> bool:
        if self.kind not in (int, float):
            return True
        low, high = (
            bound if bound is not None else end
            for bound, end in ((self.minimum, -math.inf), (self.maximum, math.inf))
        )
        return math.isfinite(value) and low <= value <= high

    def _expected(self) -> str:
        what = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}[self.kind]
        bounds = [
            *([f"at least {self.minimum:g}"] if self.minimum is not None else []),
            *([f"at most {self.maximum:g}"] if self.maximum is not None else []),
        ]
        return f"{what}{' of ' if bounds else ''}{' and '.join(bounds)}"


def checked_settings(owner: str, declared: Iterable[Setting], given: Mapping[str, Any]) -> dict[str, Any]:
    """The given settings, checked, and the defaults of the others; PromptError for one that is not declared.

    `owner` is what they are of, for the message.
    """
    known = {setting.name: setting for setting in declared}
    for name in given:
        if name not in known:
            near = get_close_matches(str(name), known, 1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(known) or 'none'}"
            raise PromptError(f"{owner} has no setting {name!r}; {hint}")
    values = {name: setting.checked(given[name]) for name, setting in known.items() if name in given}
    missing = next((n for n, setting in known.items() if n not in values and setting.default is None), None)
    if missing is not None:
        raise PromptError(f"{owner} needs its setting {missing}")
    return {name: setting.default for name, setting in known.items()} | values
