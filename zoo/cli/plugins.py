"""`zoo plugins`: what is installed, and how each plugin fared."""

from __future__ import annotations

import json

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plugins(as_json: bool) -> None:
    """The installed plugins: loaded, blocked, incompatible or broken, and what each gives."""
    from zoo.cli.table import table
    from zoo.registry import registry

    found = registry().plugins
    if as_json:
        click.echo(json.dumps([plugin.as_json() for plugin in found], ensure_ascii=False, indent=1))
        return
    rows = [
        [p.name, f"{p.distribution} {p.version}".strip(), p.state, p.error or ", ".join(p.gives)]
        for p in found
    ]
    click.echo(table(rows, ["plugin", "distribution", "state", "gives, or what went wrong"]))
