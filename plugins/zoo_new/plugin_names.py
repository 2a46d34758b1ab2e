"""The names of a new plugin: of its distribution, module, function and classes."""

from __future__ import annotations

import builtins
import keyword
import re
from dataclasses import dataclass
from importlib.util import find_spec

from zoo.architecture import Command
from zoo.errors import ZooError
from zoo.host.registry import Registry

PATTERN = re.compile(r"[a-z][a-z0-9]*([-.][a-z0-9]+)*")
LONGEST = 60
# Names that the templates use for something else.
USED = {"config", "dataclass", "hookimpl", "names", "pocket", "recipe", "repeat"}


class ScaffoldError(ZooError):
    """A new plugin cannot be written: its name is invalid or taken, its folder exists, or its base is unsuitable."""


@dataclass(frozen=True)
class Names:
    """A name, "my-arch", and those made from it: "zoo-my-arch", "zoo_my_arch", "my_arch"."""

    name: str

    @property
    def distribution(self) -> str:
        """What pip installs."""
        return f"zoo-{self.name}".replace(".", "-")

    @property
    def module(self) -> str:
        """What Python imports."""
        return self.distribution.replace("-", "_")

    @property
    def function(self) -> str:
        """The recipe's or command's function."""
        plain = self.module.removeprefix("zoo_")
        taken = keyword.iskeyword(plain) or plain in vars(builtins) or plain in USED
        return f"{plain}_" if taken else plain

    def class_name(self, suffix: str) -> str:
        """The name of a block's class, with its kind's suffix: "MyArchNorm"."""
        return "".join(part.capitalize() for part in self.module.split("_")[1:]) + suffix


def named(name: str) -> Names:
    """The names made from `name`, with or without "zoo-" before it; ScaffoldError for an invalid name."""
    plain = name.removeprefix("zoo-")
    if not PATTERN.fullmatch(plain) or len(plain) > LONGEST:
        raise ScaffoldError(
            f"{name!r} is no name for a plugin: small letters, digits, '-' and '.', a letter first, "
            f"at most {LONGEST}, as in my-arch"
        )
    return Names(plain)


def refuse_taken(names: Names, kind: str, registry: Registry, block: str | None = None) -> None:
    """Raise ScaffoldError when something installed has one of the names already."""
    name = names.name
    taken = {
        "architecture": (name in registry or name in registry.model_types, "an architecture or model_type"),
        "block": (f"{block}/{name}" in registry.blocks, "a block"),
        "strategy": (name in registry.strategies, "a strategy"),
        "command": (name in registry.table(Command), "a command"),
    }
    for is_taken, what in (taken.get(kind, taken["architecture"]), *([taken["block"]] if block else [])):
        if is_taken:
            raise ScaffoldError(f"{name!r} is taken: it is {what} of the zoo or of an installed plugin")
    for plugin in registry.plugins:
        if name == plugin.name or names.distribution == plugin.distribution:
            raise ScaffoldError(f"{name!r} is taken: the plugin {plugin.name} ({plugin.label}) is installed")
    if find_spec(names.module) is not None:
        raise ScaffoldError(f"{name!r} is taken: Python has a module {names.module} already")
