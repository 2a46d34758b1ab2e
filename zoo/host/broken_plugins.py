"""Reads the source of plugins that are broken or blocked: their packages are parsed, never imported. Imports no mlx."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
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
    for tree in _trees(module):
        bases = {id(node) for value in _arguments(tree, "base") for node in ast.walk(value)}
        if any(_is(node, text) and id(node) not in bases for node in ast.walk(tree)):
            return True
    return _quoted_in_unparsed(module, text)


def has_name(module: str, name: str) -> bool:
    """Whether the code of a plugin's package has `name` as a `name=` or among `model_types=`."""
    values = (value for tree in _trees(module) for value in _arguments(tree, "name", "model_types"))
    found = any(_is(node, name) for value in values for node in ast.walk(value))
    return found or _quoted_in_unparsed(module, name)


def _quoted_in_unparsed(module: str, text: str) -> bool:
    """Whether a file of a plugin's package that has a syntax error has `text` between quotes."""
    quoted = re.compile(rf"""(["']){re.escape(text)}\1""")
    sources = (source for source in _sources(module) if _parsed(source) is None)
    return any(quoted.search(source.decode(errors="replace")) for source in sources)


def has_block(module: str, identifier: str) -> bool:
    """Whether the code of a plugin's package has a class of a spec whose block is `identifier`, "kind/name".

    A class that takes its kind from its base is one where the name is.
    """
    kind, _, name = identifier.partition("/")
    classes = (node for tree in _trees(module) for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
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


def _arguments(tree: ast.AST, *names: str) -> Iterator[ast.expr]:
    """What is given under these keywords anywhere in the code."""
    return (node.value for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg in names)


def declared_api(module: str) -> int:
    """The largest version of the contract that the code of a plugin's package names as `api=`, 0 without one."""
    values = (value for tree in _trees(module) for value in _arguments(tree, "api"))
    found = (value.value for value in values if isinstance(value, ast.Constant))
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


def _trees(module: str) -> Iterator[ast.Module]:
    """The parsed files of the package that `module` belongs to, without those that cannot be parsed."""
    return (tree for source in _sources(module) if (tree := _parsed(source)) is not None)


def _parsed(source: bytes) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _sources(module: str) -> Iterator[bytes]:
    """The files of the package that `module` belongs to; none where the source cannot be read."""
    try:
        spec = find_spec(module.partition(".")[0])  # for a top-level package, which finding does not import
    except (ImportError, AttributeError, ValueError, OSError):
        return
    if spec is None:
        return
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    files = [file for folder in folders for file in sorted(folder.rglob("*.py"))] or [Path(spec.origin or "")]
    for file in files[:MOST_FILES]:
        try:
            if file.suffix == ".py" and file.stat().st_size <= MOST_BYTES:
                yield file.read_bytes()
        except OSError:
            continue
