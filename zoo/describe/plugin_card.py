"""The card of a plugin: what it gives, as Markdown made from its records and recipes. Imports no mlx."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

from zoo.architecture import Architecture
from zoo.describe.described import base_of, describe
from zoo.describe.differences import differences
from zoo.describe.facts.fact import aligned
from zoo.errors import ZooError
from zoo.files.writing import is_stream, write_output
from zoo.host.plugins import Plugin
from zoo.host.registry import Registry

MACHINE = "fits"  # the fact that is another on each machine
SUMS = ("parameters.total", "parameters.active", "cache.token", "cache.state")
DOES: dict[str, tuple[str, ...]] = {"What it does": ("summary",)}
# The table of each hook's records: the head of their names, and the other columns, with the fields that they show.
TABLES: dict[str, tuple[str, dict[str, tuple[str, ...]]]] = {
    "zoo_strategies": ("Strategy", {**DOES, "Tasks": ("tasks",), "Settings": ("setting_names",)}),
    "zoo_samplers": ("Sampler", DOES),
    "zoo_tokenizers": ("Tokenizer", DOES),
    "zoo_formats": ("Quantized format", DOES),
    "zoo_quantizers": ("Quantization method", DOES),
    "zoo_checkpoints": ("Checkpoint format", DOES),
    "zoo_call_formats": ("Format of tool calls", {"Whose": ("summary",)}),
    "zoo_facts": ("Facts", DOES),
    "zoo_experiments": ("Experiment", {"What is compared": ("summary",), "What it asks": ("question",)}),
    "zoo_corpora": ("Corpus", {"What it has": ("summary",), "Tasks": ("tasks",)}),
    "zoo_objectives": (
        "Objective",
        {"What it asks for": ("summary",), "Tasks and causalities": ("tasks", "causalities")},
    ),
    "zoo_commands": ("Command", DOES),
}
BEGIN, END = "<!-- card -->", "<!-- end -->"


def card(plugin: Plugin, registry: Registry) -> str:
    """The card: each architecture with its facts, each block with its fields, all other records by name."""
    architectures = plugin.records.get("zoo_architectures", ())
    parts = [_architecture(a, registry) for a in architectures if not a.bridged]
    if bridged := [f"`{a.name}`" for a in architectures if a.bridged]:
        parts.append(f"Run by another library's code: {', '.join(bridged)}.\n")
    if blocks := plugin.records.get("zoo_blocks", ()):
        rows = [
            [
                f"`{one.spec.block()}`",
                one.summary,
                ", ".join(f"`{f.name}`" for f in dataclasses.fields(one.spec)),
            ]
            for one in blocks
        ]
        parts.append(_table(["Block", "What it does", "Fields"], rows))
    for hook, (title, columns) in TABLES.items():
        if records := plugin.records.get(hook, ()):
            command = "zoo " if hook == "zoo_commands" else ""
            rows = [
                [f"`{command}{one.name}`", *(_values(one, fields) for fields in columns.values())]
                for one in records
            ]
            parts.append(_table([title, *columns], rows))
    return "\n".join(parts)


def _values(record: object, fields: Sequence[str]) -> str:
    values = (getattr(record, field) for field in fields)
    return ", ".join(text for value in values for text in ((value,) if isinstance(value, str) else value))


def rewrite(path: Path, text: str) -> None:
    """Put `text` between the marks of a file; ZooError when it cannot be read or written, or has none."""
    if is_stream(path):
        raise ZooError(f"{path}: is not a file")
    try:
        old = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ZooError(f"{path}: cannot be read ({error})") from error
    write_output(path, with_card(old, text, path).encode(), overwrite=True)


def with_card(page: str, text: str, where: object) -> str:
    """A page with `text` between its marks; ZooError, starting with `where`, when it has none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ZooError(f"{where}: has no lines {BEGIN} and {END} to put the card between")
    return f"{before}{begin}\n{text}{end}{after}"


def _architecture(architecture: Architecture, registry: Registry) -> str:
    found = describe(f"{registry.plugin_of(architecture).distribution}::{architecture.name}", registry)
    about = {
        "task": architecture.task,
        "reads `model_type`": ", ".join(architecture.model_types),
        "checkpoints": ", ".join(p.hub or p.name for p in architecture.presets if p.hub or p.embedded),
        "references": "; ".join(architecture.references),
    }
    rows = [[key, value] for key, value in about.items() if value]
    base = base_of(found, registry)
    facts = [row for row in aligned([found.sheet(registry).facts]) if row.name != MACHINE]
    told = [row for row in facts if not (row.detail or row.empty) and (base is None or row.name in SUMS)]
    rows += [[row.label, row.texts[0]] for row in told]
    name = found.preset.name if found.preset else ""
    lines = [f"**{architecture.name}**: {architecture.summary}", "", _table(["", name], rows)]
    if base is not None:
        words = differences(base[1], found.recipe, sizes=False)
        lines += [f"What differs from `{base[0]}`:", ""]
        lines += [f"- {sentence}" for sentence in words] or ["- nothing, with the same numbers"]
        lines.append("")
    return "\n".join(lines)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |\n" for line in lines)
