"""Writes a plugin's folder as a complete package, and its card by loading the plugin."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import distribution, version
from pathlib import Path
from types import ModuleType
from typing import Any

from zoo.architecture import API
from zoo.describe.plugin_card import card, with_card
from zoo.files.writing import new_folder
from zoo.host.registry import Registry, default_registry, isolated
from zoo_new.parts import BLOCKS, KINDS, BaseParts, Names, ScaffoldError, named, parts_of, refuse_taken

LONGEST = 80  # characters of a value in one line
TEMPLATES = Path(__file__).parent / "templates"

ARCHITECTURES = ("architecture", "encoder", "encoder-decoder")  # of the kinds


def create(
    name: str,
    kind: str = "architecture",
    *,
    base: str | None = None,
    block: str | None = None,
    where: Path = Path("."),
    registry: Registry | None = None,
) -> Path:
    """Write the plugin `name` as a package in the new folder `where`/`name`, and return the folder.

    `kind` is one of `KINDS["files"]`; "architecture" is a decoder, or what its base is. `base`, of an architecture, is the one that
    it is a variant of; `block` gives a decoder a block of its own, of one of the kinds in `BLOCKS`, and says which kind a
    plugin of a block alone gives ("norm"). Nothing is written after an error: ScaffoldError for a name that cannot be or
    is taken, a folder that exists, or a base that it cannot build on; SourceError for a folder that cannot be written.
    """
    registry = registry or default_registry()
    names = named(name)
    is_architecture = kind in ARCHITECTURES
    if base and not is_architecture:
        raise ScaffoldError(f"`base` is for an architecture, not for a {kind}")
    if block and kind not in ("architecture", "block"):
        raise ScaffoldError(f"`block` is for a decoder or a block, not for the kind {kind}")
    if block is not None and block not in BLOCKS:
        raise ScaffoldError(f'`block="{block}"`: not one of {", ".join(BLOCKS)}')
    block = block or ("norm" if kind == "block" else None)
    folder = free_folder(where / name)
    refuse_taken(names, kind, registry, block)
    parts = parts_of(base, registry, block, kind) if base else None
    files = KINDS["common"] | KINDS["files"][kind]
    if is_architecture:
        plain = "encoder_decoder" if kind == "encoder-decoder" else "plain"
        files |= {f"architecture/{'based' if base else plain}.py.jinja": "{m}/__init__.py"}
    files |= {f"blocks/{block}/block.py.jinja": "{m}/block.py"} if block else {}
    write(folder, names, files, template_values(names, kind, base, parts, block), parts)
    return folder


def free_folder(folder: Path) -> Path:
    """The folder; ScaffoldError when it exists."""
    if folder.exists():
        raise ScaffoldError(f"{folder}: already exists")
    return folder


def write(
    folder: Path, names: Names, files: Mapping[str, str], values: Mapping[str, Any], parts: BaseParts | None
) -> None:
    """Write the `files`, targets by template, filled with `values`, into the new `folder`, and the README's card."""
    with new_folder(folder) as part:
        for template, target in files.items():
            path = part / target.format(m=names.module, f=names.module.removeprefix("zoo_"))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(render(template, values), encoding="utf-8")
        with registered(part, names, parts) as new:
            readme = part / "README.md"
            page = with_card(readme.read_text("utf-8"), card(new.plugin(names.distribution), new), readme)
            readme.write_text(page, "utf-8")


def shown(value: object) -> str:
    """A config's value as Python code in one line of a comment, shortened."""
    text = repr(value)
    text = text if '"' in text else text.replace("'", '"')
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


@contextmanager
def registered(folder: Path, names: Names, parts: BaseParts | None) -> Iterator[Registry]:
    """The zoo's own plugins, that of the base, and the one in the folder, until the end of the block."""
    with imported(names.module, folder) as module:
        foreign = [sys.modules[parts.module]] if parts and parts.requirement else []
        yield isolated(*foreign, module)
    shutil.rmtree(folder / names.module / "__pycache__", ignore_errors=True)


def template_values(
    names: Names, kind: str, base: str | None, parts: BaseParts | None, block: str | None
) -> dict[str, Any]:
    """The values that the templates are rendered with."""
    if parts:
        summary = f"{base}, with {BLOCKS[block].change if block else parts.change.summary}"
    elif block:
        own = BLOCKS[block]
        summary = f"a {block}: {own.summary}" if kind == "block" else f"Pre-norm layers with {own.plain}"
    else:
        summary = KINDS["summaries"][kind]
    task = {"encoder": "fill-mask", "encoder-decoder": "translate"}.get(kind, "generate")
    requirements = [f"mlx-zoo>={'.'.join(version('mlx-zoo').split('.')[:2])}"]
    requirements += [parts.requirement] if parts and parts.requirement else []
    return {
        **{field: getattr(names, field) for field in ("name", "distribution", "module", "function")},
        "kind": parts.model if parts else kind,
        "is_architecture": kind in ARCHITECTURES,
        "prompt": KINDS["prompts"][parts.architecture.task if parts else task],
        "base": base,
        "parts": parts,
        "source": None,
        "block": block,
        "class_name": names.class_name(BLOCKS[block].suffix) if block else "",
        "block_summary": BLOCKS[block].summary if block else "",
        "imported": imports(BLOCKS[block].specs if block else KINDS["specs"].get(kind, ())),
        "summary": summary,
        "description": summary[0].upper() + summary[1:],
        "requirements": requirements,
        "zoo_source": zoo_source(),
        "numbers": parts.numbers if parts else KINDS["numbers"] | (BLOCKS[block].numbers if block else {}),
        "checkpoint": parts.checkpoint if parts and not block else None,
        "api": API,
    }


def zoo_source() -> str:
    """The requirement from which pip installs this zoo: its source URL, or its name in a package index."""
    origin = json.loads(distribution("mlx-zoo").read_text("direct_url.json") or "{}")
    url, vcs = origin.get("url", ""), origin.get("vcs_info")
    if vcs:
        return f"mlx-zoo @ {vcs['vcs']}+{url}@{vcs['commit_id']}"
    return f"mlx-zoo @ {url}" if url.startswith("https://") else "mlx-zoo"


def render(template: str, values: Mapping[str, Any]) -> str:
    """A template's text, filled."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["python"] = literal
    environment.filters["text"] = shown
    return environment.get_template(template).render(values)


def imports(names: Iterable[str]) -> str:
    """The statement that imports these names from `zoo.recipe`, sorted and wrapped as ruff does."""
    ordered = sorted(names, key=lambda name: (name[0].islower(), name))
    line = f"from zoo.recipe import {', '.join(ordered)}"
    if len(line) <= 110:
        return line
    return "\n".join(("from zoo.recipe import (", *(f"    {name}," for name in ordered), ")"))


def literal(value: object, indent: int = 4) -> str:
    """A config's value as Python code, an item a line where it is long; `indent` is that of the line it begins on."""
    text = repr(value)
    text = text if '"' in text else text.replace("'", '"')
    if len(text) <= LONGEST or not isinstance(value, dict | list | tuple) or not value:
        return text
    inner, outer = " " * (indent + 4), " " * indent
    first, last = {dict: ("{", "}"), list: ("[", "]"), tuple: ("(", ")")}[type(value)]
    if isinstance(value, dict):
        items = [f"{literal(key)}: {literal(item, indent + 4)}" for key, item in value.items()]
    else:
        items = [literal(item, indent + 4) for item in value]
    return "\n".join([first, *(f"{inner}{item}," for item in items), f"{outer}{last}"])


@contextmanager
def imported(name: str, folder: Path) -> Iterator[ModuleType]:
    """The package `name` of a folder, imported until the end of the block and then forgotten."""
    package = folder / name
    spec = importlib.util.spec_from_file_location(
        name, package / "__init__.py", submodule_search_locations=[str(package)]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        for key in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
            del sys.modules[key]
