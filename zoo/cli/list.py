"""`zoo list`: the architectures that the zoo has."""

from __future__ import annotations

import json
from typing import Any

import click


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(as_json: bool) -> None:
    """The architectures that the zoo has, with their tasks and checkpoints; apart, those of other libraries."""
    from zoo.cli.table import table
    from zoo.registry import registry

    known = registry()
    rows: list[dict[str, Any]] = []
    for name, architecture in (known.architectures | (known.bridged if as_json else {})).items():
        plugin = known.plugin_of(architecture)
        rows.append(
            {
                "name": name,
                "task": architecture.task,
                "base": architecture.base,
                "presets": [preset.name for preset in architecture.presets],
                "summary": architecture.summary,
                "plugin": plugin.name,
                "distribution": plugin.distribution,
            }
        )
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False, indent=1))
        return
    cells = [[r["name"], r["task"], r["base"] or "", ", ".join(r["presets"]), r["summary"]] for r in rows]
    head = ["name", "task", "base", "presets", "summary"]
    if any(not plugin.ours for plugin in known.plugins if plugin.gives):
        head.append("from")
        cells = [[*cell, row["distribution"]] for cell, row in zip(cells, rows, strict=True)]
    click.echo(table(cells, head))
    libraries: dict[str, list[str]] = {}
    for name in known.bridged:
        library, _, plain = name.partition("::")
        libraries.setdefault(library, []).append(plain)
    for library, names in libraries.items():
        click.echo(f"\nRun by {library}'s own code, found by model_type or asked for as {library}::NAME:\n")
        click.echo(click.wrap_text(", ".join(names), 100, "  ", "  "))
