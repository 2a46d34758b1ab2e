"""`zoo list`: the architectures that the zoo has."""

from __future__ import annotations

import json
from typing import Any

import click

from zoo.cli.terminal import columns, table, width, wrapped


@click.command("list")
@click.option("--all", "everything", is_flag=True, help="Also name those that other libraries' code runs.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, those of other libraries included.")
def list_(everything: bool, as_json: bool) -> None:
    """List the architectures with their tasks. ● marks those with a checkpoint in the package.

    A line below counts the architectures that other libraries run. Where there is room, the table also has the base of
    each architecture, which it is a variant of, and its presets.
    """
    from zoo.host.registry import default_registry

    registry = default_registry()
    rows: list[dict[str, Any]] = []
    for name, architecture in (registry.architectures | (registry.bridged if as_json else {})).items():
        plugin = registry.plugin_of(architecture)
        rows.append(
            {
                "name": name,
                "task": architecture.task,
                "base": architecture.base,
                "presets": [preset.name for preset in architecture.presets],
                "embedded": any(preset.embedded for preset in architecture.presets),
                "summary": architecture.summary,
                "plugin": plugin.name,
                "distribution": plugin.distribution,
            }
        )
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False, indent=1))
        return
    shown = ["name", "", "task", "base", "presets", "summary"]
    if any(not plugin.first_party for plugin in registry.plugins if plugin.gives):
        shown.append("from")
    cells = [
        row | {"": "●" * row["embedded"], "presets": ", ".join(row["presets"]), "from": row["distribution"]}
        for row in rows
    ]

    def drawn(names: list[str], room: int | None = None) -> str:
        return table([[row[name] or "" for name in names] for row in cells], names, room=room)

    room = columns()
    whole = drawn(shown, 10**6)
    if room is None or max(map(width, whole.splitlines())) <= room:
        click.echo(whole)
    else:
        click.echo(drawn([name for name in shown if name not in ("base", "presets")]))
    click.echo(wrapped("● answers at once: `zoo run NAME`; `zoo show NAME` tells more of any", first="\n"))
    libraries: dict[str, list[str]] = {}
    for name in registry.bridged:
        library, _, plain = name.partition("::")
        libraries.setdefault(library, []).append(plain)
    for library, names in libraries.items():
        line = f"{len(names)} more run by {library}'s own code, found by model_type or asked for as {library}::NAME"
        if everything:
            click.echo(wrapped(f"{line}:", first="\n") + "\n")
            click.echo(wrapped(", ".join(names), room or 100, "  ", "  "))
        else:
            click.echo(wrapped(f"{line}; `zoo list --all` names them"))
