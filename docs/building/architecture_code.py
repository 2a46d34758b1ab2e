"""The code of an architecture, as Markdown: its recipe function, the blocks that its recipe has, its plugin's files."""

from __future__ import annotations

from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from building.architecture_words import WORDS
from building.build_cache import ROOT
from building.code_pages import address_of
from building.family import Member
from building.markdown import raw, table
from zoo.architecture import Block
from zoo.describe.facts.fact import ABSENT
from zoo.describe.language import in_language
from zoo.describe.source_code import block_classes, recipe_code, source_of
from zoo.host.registry import Registry


def code(one: Member, registry: Registry, language: str) -> str:
    """The section: the recipe function, what it uses of its plugin, a table of blocks, and the plugin's files.

    The files are whole where no page of the docs has them.
    """
    words, docname = WORDS[language], f"architectures/{one.name}"
    module = registry.plugin_of(one.found.architecture).module
    package = module.partition(".")[0]
    parts, used = [], recipe_code(one.found.architecture.recipe)
    for recipe in used[:1]:
        parts = [words["recipe"].format(place=_place(recipe, docname, language)) + "\n", _source(recipe)]
    modules = block_classes(one.found.recipe, registry).values()
    own = [target for target in dict.fromkeys((*used[1:], *modules)) if _package(target) == package]
    parts += [folded(_title(target), _source(target)) for target in own]
    parts.append(words["parts"].format(origin=one.origin) + "\n")
    parts += [_blocks(one, registry, docname, language), _files(module, docname, language)]
    return "\n".join(parts)


def _package(target: Any) -> str:
    return target.__module__.partition(".")[0]


def _title(target: Any) -> str:
    """The name of a class or function, and of the module that it stands in, as HTML."""
    return f"<code>{escape(target.__qualname__)}</code> · {escape(target.__module__)}"


def _source(target: Any) -> str:
    """A class or function as a block of code; nothing where there is no file of it."""
    found = source_of(target)
    return "" if found is None else _fenced(found.text.rstrip())


def _fenced(source: str) -> str:
    return f"````python\n{source}\n````\n"


def _place(target: Any, docname: str, language: str, name: str = "") -> str:
    """The name of a class or function, else of its module, as HTML: a link where the docs have a page of its file."""
    shown = f"<code>{escape(name or target.__module__)}</code>"
    try:
        return f'<a href="{address_of(target, docname, language)}">{shown}</a>'
    except (OSError, TypeError, ValueError):
        return shown


def _blocks(one: Member, registry: Registry, docname: str, language: str) -> str:
    """Each kind of block in the recipe, where it stands first, what it does and the class that runs it."""
    words, seen = WORDS[language], {}
    for path, spec in one.found.recipe.walk():
        seen.setdefault(type(spec), path)
    blocks = {block.spec: block for block in registry.table(Block).listed().values()}
    rows = []
    for spec, path in seen.items():
        if spec not in blocks:
            continue  # a part without a module: numbers of the block that holds it
        name = _place(registry.module(spec), docname, language, registry.module(spec).__name__)
        place = f"<code>{_starred(path)}</code>" if path else ABSENT
        summary = escape(in_language(blocks[spec].summary, language))
        rows.append([place, name, f"{summary}<br><code>{spec.block()}</code>"])
    head = [words[name] for name in ("path", "class", "what")]
    return raw(table(head, rows, "zoo-parts", words["code"]))


def folded(title: str, text: str) -> str:
    """Markdown that is shown when a reader opens its title, which is HTML."""
    head = f"````{{raw}} html\n<details><summary>{title}</summary>\n````\n"
    return f"{head}\n{text}\n````{{raw}} html\n</details>\n````\n"


def _starred(path: str) -> str:
    return ".".join("*" if step.isdigit() else step for step in path.split("."))


def plugin_files(module: str) -> list[Path]:
    """The Python files of the package, or the module, that a plugin is."""
    found = find_spec(module) if module else None
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
