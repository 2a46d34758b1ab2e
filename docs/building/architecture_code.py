"""The code of an architecture, as Markdown: its recipe function, the blocks that its recipe has, its plugin's files."""

from __future__ import annotations

import inspect
from functools import partial
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from building.architecture_words import WORDS
from building.code import address_of
from building.family import Member
from building.kept import ROOT
from zoo.architecture import Block
from zoo.errors import PluginError
from zoo.facts.fact import ABSENT
from zoo.host.registry import Registry
from zoo.insight.language import in_language


def code(one: Member, registry: Registry, language: str) -> str:
    """The section: the recipe function, a table of blocks, and the files, whole where no page of the docs has them."""
    words, docname = WORDS[language], f"architectures/{one.name}"
    recipe = one.found.architecture.recipe
    while isinstance(recipe, partial):
        recipe = recipe.func
    plain = inspect.isfunction(recipe) and recipe.__name__ != "<lambda>"
    place = _place(inspect.unwrap(recipe), docname, language) if callable(recipe) else ""
    parts = []
    if plain:
        source = inspect.getsource(recipe).rstrip()
        parts.append(f"{words['recipe'].format(place=place)}\n\n{_fenced(source)}")
    elif place:
        parts.append(words["recipe elsewhere"].format(place=place) + "\n")
    parts.append(words["parts"].format(origin=one.origin) + "\n")
    parts.append(_blocks(one, registry, docname, language))
    module = registry.plugin_of(one.found.architecture).module
    parts += [_own(one, registry, module.partition(".")[0], language), _files(module, docname, language)]
    return "\n".join(parts)


def _fenced(source: str) -> str:
    return f"````python\n{source}\n````\n"


def _place(target: Any, docname: str, language: str) -> str:
    """A link to where a class or function is; only the file's name where the docs have no page of it."""
    try:
        address = address_of(target, docname, language)
    except (OSError, TypeError, ValueError):
        return f"`{target.__module__}`"
    return f'<a href="{address}">`{target.__module__}`</a>'


def _blocks(one: Member, registry: Registry, docname: str, language: str) -> str:
    """Each kind of block in the recipe, where it stands first, what it does and the class that runs it."""
    words, seen = WORDS[language], {}
    for path, spec in one.found.recipe.walk():
        seen.setdefault(type(spec), path)
    blocks = {block.spec: block for block in registry.table(Block).listed().values()}
    lines = [f"| {words['path']} | {words['block']} |  | {words['class']} |", "|---|---|---|---|"]
    for spec, path in seen.items():
        if spec not in blocks:
            continue  # a part without a module: numbers of the block that holds it
        module = registry.module(spec)
        try:
            address = address_of(module, docname, language)
        except (OSError, TypeError, ValueError):
            name = f"`{module.__name__}`"
        else:
            name = f'<a href="{address}">`{module.__name__}`</a>'
        summary = in_language(blocks[spec].summary, language).replace("|", "\\|")
        place = f"`{_starred(path)}`" if path else ABSENT
        lines.append(f"| {place} | `{spec.block()}` | {summary} | {name} |")
    return "\n".join(lines) + "\n"


def _own(one: Member, registry: Registry, package: str, language: str) -> str:
    """The source of the recipe's blocks that the plugin itself has, each folded: what it says of itself, then its module."""
    parts = []
    for spec in dict.fromkeys(type(spec) for _, spec in one.found.recipe.walk()):
        if spec.__module__.partition(".")[0] != package:
            continue
        try:
            classes = dict.fromkeys((spec, registry.module(spec)))
        except PluginError:
            classes = {spec: None}  # a part without a module
        sources = [f"# {cls.__module__}\n\n{inspect.getsource(cls).rstrip()}" for cls in classes]
        title = WORDS[language]["own"].format(name=f"<code>{escape(spec.__name__)}</code>")
        parts.append(folded(title, _fenced("\n\n\n".join(sources))))
    return "\n".join(parts)


def folded(title: str, text: str) -> str:
    """Markdown that is shown when a reader opens its title, which is HTML."""
    head = f"````{{raw}} html\n<details><summary>{title}</summary>\n````\n"
    return f"{head}\n{text}\n````{{raw}} html\n</details>\n````\n"


def _starred(path: str) -> str:
    return ".".join("*" if step.isdigit() else step for step in path.split("."))


def plugin_files(module: str) -> list[Path]:
    """The Python files of the package, or the module, that a plugin is."""
    found = find_spec(module.partition(":")[0])
    if found is None or found.origin is None:
        return []
    path = Path(found.origin)
    return sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else [path]


def _files(module: str, docname: str, language: str) -> str:
    """Links to the pages of a plugin's files; whole and folded where the docs have no page of them."""
    words, paths = WORDS[language], plugin_files(module)
    if not paths:
        return ""
    folder = paths[0].parent.parent if len(paths) > 1 or paths[0].name == "__init__.py" else paths[0].parent
    if all(path.is_relative_to(ROOT) for path in paths):
        up = "../" * (docname.count("/") + (language == "zh"))
        links = (
            f'<a href="{up}code/{path.relative_to(ROOT).with_suffix(".html").as_posix()}">'
            f"`{path.relative_to(folder).as_posix()}`</a>"
            for path in paths
            if path.read_text(encoding="utf-8").strip()
        )
        return words["files"].format(files=words["list"].join(links)) + "\n"
    shown = []
    for path in paths:
        text = path.read_text(encoding="utf-8").rstrip()
        if text:
            title = f"<code>{escape(path.relative_to(folder).as_posix())}</code>"
            shown.append(folded(title, _fenced(text)))
    return "\n".join(shown)
