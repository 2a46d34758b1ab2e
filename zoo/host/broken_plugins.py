"""Reads the source of plugins that are broken or blocked: their packages are parsed, never imported. Imports no mlx."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from zoo.errors import message_of
from zoo.version import __version__

MOST_FILES, MOST_BYTES = 64, 2**20
_NO_NAME = re.compile(r"cannot import name '(\w+)' from '(zoo(?:\.\w+)*)'")
_NO_MODULE = re.compile(r"No module named '(zoo(?:\.\w+)+)'")


def has_string(module: str, text: str) -> bool:
    """Whether a string of the code of a plugin's package is `text`, as a model_type would be.

    The `base=` of an architecture, which names another one, does not count.
    """
    package = _parse(module)
    bases = {id(node) for value in package.arguments("base") for node in ast.walk(value)}
    return package.quotes(text) or any(_is(node, text) and id(node) not in bases for node in package.nodes)


def has_name(module: str, name: str) -> bool:
    """Whether the code of a plugin's package has `name` as a `name=` or among `model_types=`."""
    package = _parse(module)
    values = package.arguments("name", "model_types")
    return package.quotes(name) or any(_is(node, name) for value in values for node in ast.walk(value))


def has_block(module: str, identifier: str) -> bool:
    """Whether the code of a plugin's package has a class of a spec whose block is `identifier`, "kind/name".

    A class that takes its kind from its base is one where the name is.
    """
    kind, _, name = identifier.partition("/")
    classes = (node for node in _parse(module).nodes if isinstance(node, ast.ClassDef))
    found = (dict(_constant_attributes(node)) for node in classes)
    return any(values.get("name") == name and values.get("kind", kind) == kind for values in found)


def _constant_attributes(node: ast.ClassDef) -> Iterator[tuple[str, Any]]:
    """The class attributes that are assigned constants, with these: by `name = "x"` or by `kind, name = "mixer", "x"`."""
    for line in node.body:
        if not isinstance(line, ast.Assign | ast.AnnAssign):
            continue
        for target in line.targets if isinstance(line, ast.Assign) else [line.target]:
            pairs: Iterable[tuple[Any, Any]] = [(target, line.value)]
            if isinstance(target, ast.Tuple) and isinstance(line.value, ast.Tuple):
                pairs = zip(target.elts, line.value.elts, strict=False)
            for left, right in pairs:
                if isinstance(left, ast.Name) and isinstance(right, ast.Constant):
                    yield left.id, right.value


def _is(node: ast.AST, value: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == value


def declared_api(module: str) -> int:
    """The largest version of the contract that the code of a plugin's package names as `api=`, 0 without one."""
    found = (value.value for value in _parse(module).arguments("api") if isinstance(value, ast.Constant))
    return max((version for version in found if type(version) is int), default=0)


def missing_from_zoo(error: BaseException) -> str | None:
    """The name or module that a failed import asked of the zoo; None for another error, or a misspelled name."""
    if isinstance(error, ModuleNotFoundError) and (match := _NO_MODULE.search(message_of(error))):
        return f"the module {match[1]}"
    if isinstance(error, ImportError) and (match := _NO_NAME.search(message_of(error))):
        name, home = match.groups()
        near = get_close_matches(name, dir(import_module(home)), 1, 0.8)
        return None if near else f"{name} of {home}"
    return None


def unmet_requirement(distribution: str) -> str | None:
    """The requirement of a distribution on mlx-zoo that this version does not meet: "mlx-zoo>=0.3"; None without one."""
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    try:
        requirements = [Requirement(line) for line in requires(distribution) or ()]
    except (PackageNotFoundError, ValueError, InvalidRequirement):
        return None
    for wanted in requirements:
        if canonicalize_name(wanted.name) != "mlx-zoo" or (wanted.marker and not wanted.marker.evaluate()):
            continue
        if not wanted.specifier.contains(__version__, prereleases=True):
            return f"mlx-zoo{wanted.specifier}"
    return None


@dataclass
class _Package:
    """The code of a package: the `nodes` of the files that can be parsed, and the text of the others."""

    nodes: list[ast.AST] = field(default_factory=list)
    unparsed: str = ""

    def arguments(self, *names: str) -> list[ast.expr]:
        """What is given under these keywords anywhere in the code."""
        return [node.value for node in self.nodes if isinstance(node, ast.keyword) and node.arg in names]

    def quotes(self, text: str) -> bool:
        """Whether a file that has a syntax error has `text` between quotes."""
        return f'"{text}"' in self.unparsed or f"'{text}'" in self.unparsed


def _parse(module: str) -> _Package:
    """The package that `module` belongs to, empty where its source cannot be read."""
    package = _Package()
    try:
        spec = find_spec(module.partition(".")[0])  # for a top-level package, which finding does not import
    except (ImportError, AttributeError, ValueError, OSError):
        return package
    if spec is None:
        return package
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    files = [file for folder in folders for file in sorted(folder.rglob("*.py"))] or [Path(spec.origin or "")]
    for file in files[:MOST_FILES]:
        try:
            if file.suffix != ".py" or file.stat().st_size > MOST_BYTES:
                continue
            source = file.read_bytes()
            package.nodes += ast.walk(ast.parse(source))
        except OSError:
            continue
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            package.unparsed += source.decode(errors="replace")
    return package
