"""Where an error was raised: the plugin, the path of the block in the recipe, and the line. Imports no mlx."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable
from types import FrameType
from typing import Any

from zoo.errors import in_words
from zoo.host.discovery import Plugin

# Packages whose lines say nothing about a mistake in the code that called them.
LIBRARIES = frozenset({"mlx", "numpy", *sys.stdlib_module_names}) - {"__main__"}


def plugin_at_fault(error: BaseException, plugins: Iterable[Plugin]) -> Plugin | None:
    """The plugin in whose code an error was raised: the one that the innermost frame of any plugin belongs to."""
    packages = {_package(plugin.module): plugin for plugin in plugins if plugin.module}
    found = [packages[name] for frame, _ in _frames(error) if (name := _package_of(frame)) in packages]
    return found[-1] if found else None


def error_with_place(error: BaseException, plugins: Iterable[Plugin]) -> str:
    """An error in one line, that of a block with the block's path and the innermost line of its plugin's code.

    "layers.3.mixer: TypeError: … (/…/zoo_gptj/block.py, line 12)". `plugins` are all that there are: a line of a third
    party's code is preferred to one of the zoo's, and both to those of libraries.
    """
    frames = _frames(error)
    start = next((i for i, (frame, _) in enumerate(frames) if _module(frame) is not None), 0)
    code = [(frame, line) for frame, line in frames[start:] if _package_of(frame) not in LIBRARIES]
    own = {_package(plugin.module) for plugin in plugins if plugin.first_party}
    nearest = [place for place in code if _package_of(place[0]) not in own] or code
    path = block_path(error)
    where = f" ({nearest[-1][0].f_code.co_filename}, line {nearest[-1][1]})" if nearest else ""
    return f"{f'{path}: ' if path else ''}{in_words(error)}{where}"


def block_path(error: BaseException) -> str:
    """The path in its model of the innermost block that was called when an error was raised; "" where there is none."""
    modules = [module for frame, _ in _frames(error) if (module := _module(frame)) is not None]
    paths: dict[int, str] = {}
    for path, module in modules[0].named_modules() if modules else ():
        paths.setdefault(id(module), path)
    return next((paths[id(module)] for module in reversed(modules) if id(module) in paths), "")


def _module(frame: FrameType) -> Any:
    """The module of a model whose method a frame runs; None for another frame."""
    found = frame.f_locals.get("self")
    return found if callable(getattr(found, "named_modules", None)) else None


def _frames(error: BaseException) -> list[tuple[FrameType, int]]:
    return list(traceback.walk_tb(error.__traceback__))


def _package(module: str) -> str:
    return module.partition(".")[0]


def _package_of(frame: FrameType) -> str:
    return _package(frame.f_globals.get("__name__", ""))
