"""Finds the source code of a recipe: the classes of its blocks and the functions that read its config."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import cache, partial
from html import escape
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from zoo.errors import PluginError
from zoo.frozen import Frozen, frozen
from zoo.host.registry import Registry
from zoo.recipe import Spec

ROOT = Path(__file__).resolve().parents[2]  # of this installation, or of the repository
OUTSIDE = ("builtins", "mlx", "zoo")  # packages whose names a recipe function uses without owning them

# The kinds of tokens that are coloured: the beginnings of Pygments' names, the more special first.
COLOURED = (
    ("Token.Literal.String.Doc", "d"),
    ("Token.Literal.String", "s"),
    ("Token.Literal.Number", "m"),
    ("Token.Comment", "c"),
    ("Token.Keyword", "k"),
    ("Token.Operator.Word", "k"),
    ("Token.Name.Class", "f"),
    ("Token.Name.Function", "f"),
    ("Token.Name.Decorator", "f"),
)


@frozen()
class SourceCode(Frozen):
    """The source of a class or function: `name` is "package.module:Class", `line` that of its first line in `file`.

    `file` is the path from the repository or, for what is installed, from the folder of packages. `bases` are the names of
    the classes that it inherits from and whose source is known, nearest first.
    """

    name: str
    file: str
    line: int
    text: str
    bases: tuple[str, ...] = ()

    @property
    def html(self) -> str:
        """The text as HTML, its keywords, strings, comments and numbers in spans."""
        from pygments.lexers.python import PythonLexer

        parts: list[list[str]] = []
        for kind, text in PythonLexer(stripnl=False).get_tokens(self.text.rstrip()):
            name = str(kind)
            colour = next((short for start, short in COLOURED if name.startswith(start)), "")
            if parts and (parts[-1][0] == colour or not text.strip()):
                parts[-1][1] += escape(text, quote=False)
            else:
                parts.append([colour, escape(text, quote=False)])
        spans = (f'<span class="{colour}">{text}</span>' if colour else text for colour, text in parts)
        return "".join(spans).rstrip()


@cache
def source_of(target: Callable[..., Any]) -> SourceCode | None:
    """The source of a class or function; None where there is no file of it."""
    try:
        file = inspect.getsourcefile(target)
        lines, first = inspect.getsourcelines(target)
    except (OSError, TypeError):
        return None
    bases = tuple(map(_name, bases_of(target)))
    return SourceCode(_name(target), _place(Path(file or ""), target), first, "".join(lines), bases)


def bases_of(target: Callable[..., Any]) -> list[type]:
    """The classes that a class inherits from, nearest first, without those of Python, of MLX and of every recipe."""
    bases = [base for base in getattr(target, "__mro__", ())[1:] if base not in (Spec, Frozen)]
    return [base for base in bases if base.__module__.partition(".")[0] not in ("builtins", "mlx")]


def _name(target: Callable[..., Any]) -> str:
    return f"{target.__module__}:{target.__qualname__}"


def _place(file: Path, target: Callable[..., Any]) -> str:
    """The path of a file from the repository, or from the folder that holds its package."""
    file = file.resolve()
    if file.is_relative_to(ROOT):
        return file.relative_to(ROOT).as_posix()
    depth = target.__module__.count(".") + (file.name == "__init__.py")
    return file.relative_to(file.parents[min(depth, len(file.parents) - 1)]).as_posix()


def block_classes(recipe: Spec, registry: Registry) -> dict[str, type]:
    """The class that runs each kind of block in a recipe, by the block's name ("mixer/attention"), in the order of the data.

    A block that no installed module runs is left out.
    """
    classes: dict[str, type] = {}
    for _, spec in recipe.walk():
        if spec.block() not in classes:
            try:
                classes[spec.block()] = registry.module(type(spec))
            except PluginError:
                continue
    return classes


def block_parts(recipe: Spec) -> dict[str, tuple[str, ...]]:
    """The blocks that each kind of block in a recipe holds, by name."""
    blocks: dict[str, dict[str, None]] = {}
    for _, spec in recipe.walk():
        parts = blocks.setdefault(spec.block(), {})
        parts.update((part.block(), None) for _, part in spec.children())
    return {block: tuple(parts) for block, parts in blocks.items() if parts}


def recipe_code(function: Callable[..., Any]) -> list[Callable[..., Any]]:
    """The function that makes a recipe, and the functions and classes of plugins that it uses, each before what it uses.

    The vocabulary that all plugins share, the zoo's own, is left out.
    """
    used_code: dict[str, Callable[..., Any]] = {}

    def follow(target: Callable[..., Any]) -> None:
        while isinstance(target, partial):
            target = target.func
        if not isinstance(target, FunctionType | type):
            target = type(target)
        if target.__module__.partition(".")[0] in OUTSIDE or _name(target) in used_code:
            return
        used_code[_name(target)] = target
        members = vars(target).values() if isinstance(target, type) else [target]
        for member in (one for one in members if isinstance(one, FunctionType)):
            for name in _names(member.__code__):
                used = member.__globals__.get(name)
                if isinstance(used, FunctionType | type):
                    follow(used)

    follow(function)
    return list(used_code.values())


def _names(code: CodeType) -> Iterator[str]:
    """The global names that a function uses, in its inner functions, too."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
