"""The card of a plugin: what it gives, as Markdown made from its records and recipes. Imports no mlx."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.architecture import Architecture, Block
from zoo.config import Config
from zoo.errors import ZooError
from zoo.files import write_text
from zoo.host.discovery import Plugin
from zoo.host.registry import Registry
from zoo.insight.facts import comparison, described, facts

BEGIN, END = "<!-- card -->", "<!-- end -->"


def card(plugin: Plugin, registry: Registry) -> str:
    """The card: each architecture with its facts, each block with its fields, all other records by name."""
    architectures = plugin.records.get("zoo_architectures", ())
    parts = [_architecture(a, registry) for a in architectures if not a.bridged]
    if bridged := [f"`{a.name}`" for a in architectures if a.bridged]:
        parts.append(f"Run by another library's code: {', '.join(bridged)}.\n")
    if blocks := plugin.records.get("zoo_blocks", ()):
        parts.append(_table(["Block", "What it does", "Fields"], (_block(block) for block in blocks)))
    if strategies := plugin.records.get("zoo_strategies", ()):
        rows = ([f"`{s.name}`", s.summary, ", ".join(s.tasks), ", ".join(s.takes)] for s in strategies)
        parts.append(_table(["Strategy", "What it does", "Tasks", "Settings"], rows))
    for hook, title in (
        ("samplers", "Sampler"),
        ("tokenizers", "Tokenizer"),
        ("formats", "Quantized format"),
        ("checkpoints", "Checkpoint format"),
    ):
        if records := plugin.records.get(f"zoo_{hook}", ()):
            parts.append(_table([title, "What it does"], ([f"`{r.name}`", r.summary] for r in records)))
    if corpora := plugin.records.get("zoo_corpora", ()):
        rows = ([f"`{c.name}`", c.summary, ", ".join(c.tasks)] for c in corpora)
        parts.append(_table(["Corpus", "What it has", "Tasks"], rows))
    if objectives := plugin.records.get("zoo_objectives", ()):
        rows = ([f"`{o.name}`", o.summary, ", ".join((*o.tasks, *o.causalities))] for o in objectives)
        parts.append(_table(["Objective", "What it asks for", "Tasks and causalities"], rows))
    if commands := plugin.records.get("zoo_commands", ()):
        parts.append(_table(["Command", "What it does"], ([f"`zoo {c.name}`", c.summary] for c in commands)))
    return "\n".join(parts)


def rewrite(path: Path, text: str) -> None:
    """Put `text` between the marks of a file; ZooError when it cannot be read or has none."""
    try:
        old = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ZooError(f"{path}: cannot be read ({error})") from error
    before, begin, rest = old.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ZooError(f"{path}: has no lines {BEGIN} and {END} to put the card between")
    write_text(path, f"{before}{begin}\n{text}{end}{after}")


def _architecture(architecture: Architecture, registry: Registry) -> str:
    _, preset, recipe = described(
        f"{registry.plugin_of(architecture).distribution}::{architecture.name}", registry
    )
    about = {
        "task": architecture.task,
        "reads `model_type`": ", ".join(architecture.model_types),
        "checkpoints": ", ".join(p.hub or p.name for p in architecture.presets if p.hub or p.embedded),
        "references": "; ".join(architecture.references),
    }
    own = facts(recipe)
    rows = [[key, value] for key, value in about.items() if value]
    base = _base_facts(architecture, registry, preset.config or {})
    if base is None:
        rows += [[key, value] for key, value in own.items()]
        return f"**{architecture.name}**: {architecture.summary}\n\n" + _table(["", preset.name], rows)
    rows += [[key, own[key]] for key in ("parameters", "cache per token")]
    differing = [[n, *values] for n, values, differs in comparison({"": own, "base": base}) if differs]
    lines = [f"**{architecture.name}**: {architecture.summary}", "", _table(["", preset.name], rows)]
    lines += [f"With the same numbers it differs from `{architecture.base}` in:", ""]
    return "\n".join([*lines, _table(["", architecture.name, architecture.base or ""], differing)])


def _base_facts(
    architecture: Architecture, registry: Registry, numbers: Mapping[str, Any]
) -> dict[str, str] | None:
    """The facts of the base's recipe with the same numbers; None when there is none, or it cannot read them."""
    if architecture.base is None or architecture.base not in registry:
        return None
    try:
        return facts(registry.architecture(architecture.base).recipe(Config(numbers)))
    except ZooError:
        return None


def _block(block: Block) -> list[str]:
    fields = ", ".join(f"`{field.name}`" for field in dataclasses.fields(block.spec))
    return [f"`{block.spec.block()}`", block.summary, fields]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |\n" for line in lines)
