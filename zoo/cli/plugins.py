"""`zoo plugins`: what is installed, and how each plugin fared."""

from __future__ import annotations

import json
from typing import Any

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def plugins(debug: bool, as_json: bool) -> None:
    """The installed plugins: loaded, blocked, incompatible or broken, and what each gives.

    `zoo --debug plugins` shows where a broken one failed. ZOO_PLUGINS (names of plugins or distributions, with
    commas) loads these alone, ZOO_BLOCK leaves some out, ZOO_STRICT=1 makes a broken one an error.
    """
    from zoo.cli.table import table
    from zoo.registry import registry

    found = registry().plugins
    if as_json:
        rows = [p.as_json() | ({"traceback": p.traceback} if debug else {}) for p in found]
        click.echo(json.dumps(rows, ensure_ascii=False, indent=1))
        return
    head = ["plugin", "distribution", "state", "gives, or what went wrong"]
    cells = [
        [p.name, f"{p.distribution} {p.version}".strip(), p.state, p.error or ", ".join(p.gives) or "nothing"]
        for p in found
    ]
    click.echo(table(cells, head))
    for plugin in found:
        if debug and plugin.traceback:
            click.echo(f"\n{plugin.name}:\n{plugin.traceback}".rstrip())


def served_by(architecture: Any) -> None:
    """Say on the error stream which plugin runs a model, when it is not one of the zoo's own."""
    from zoo.registry import registry

    plugin = registry().plugin_of(architecture)
    if not plugin.ours:
        click.echo(f"zoo: {architecture.name} is served by the plugin {plugin.told}", err=True)
