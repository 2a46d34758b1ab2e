"""`zoo plugins`: the installed plugins and their states."""

from __future__ import annotations

import json
from pathlib import Path

import click

from zoo.cli.source_options import FILE
from zoo.cli.terminal import columns, table

# What a person types before the name of one of several records, by how `contested_names` writes their kind.
ASKED = {"model_type ": "--architecture ", "zoo ": "zoo "}
PIPE = 110  # the width of the table in cells where there is no terminal: a program reads --json


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--card", metavar="NAME", help="Print what this plugin gives as Markdown, for its README.")
@click.option(
    "--into",
    type=FILE,
    help="Write the card into this file, between its marks <!-- card --> and <!-- end -->.",
)
@click.pass_obj
def plugins(debug: bool, as_json: bool, card: str | None, into: Path | None) -> None:
    """List the installed plugins: loaded, blocked, incompatible or broken, and what each gives.

    `zoo --debug plugins` shows where a broken one failed. ZOO_PLUGINS (names of plugins or distributions, separated by
    commas) loads only these, ZOO_BLOCK skips some, and ZOO_STRICT=1 makes a broken one an error.
    """
    from zoo.host.registry import default_registry

    if card or into:
        _card(card, into)
        return
    registry = default_registry()
    found, contested = registry.plugins, registry.contested_names
    if as_json:
        rows = [
            plugin.as_json()
            | {"contested": [name for name in plugin.gives if name in contested]}
            | ({"traceback": plugin.traceback} if debug else {})
            for plugin in found
        ]
        click.echo(json.dumps(rows, ensure_ascii=False, indent=1))
        return
    head = ["plugin", "distribution", "state", "gives, or what went wrong"]
    cells = [
        [
            plugin.name,
            f"{plugin.distribution} {plugin.version}".strip(),
            plugin.state,
            plugin.error or ", ".join(name + "*" * (name in contested) for name in plugin.gives) or "nothing",
        ]
        for plugin in found
    ]
    click.echo(table(cells, head, room=columns() or PIPE))
    for name, options in contested.items():
        before = next((before for start, before in ASKED.items() if name.startswith(start)), "")
        wanted = " or ".join(before + option for option in options)
        click.echo(f"\n* {name} is claimed by several plugins, and neither has it: ask for {wanted}")
    for plugin in found:
        if debug and plugin.traceback:
            click.echo(f"\n{plugin.name}:\n{plugin.traceback}".rstrip())


def _card(name: str | None, into: Path | None) -> None:
    from zoo.describe.plugin_card import card, rewrite
    from zoo.errors import PluginError
    from zoo.host.registry import default_registry

    if name is None:
        raise click.UsageError("--into goes with --card NAME")
    registry = default_registry()
    plugin = registry.plugin(name)
    if plugin.state != "loaded":
        raise PluginError(f"plugin {name} is {plugin.state}: {plugin.error}")
    text = card(plugin, registry)
    if into is None:
        click.echo(text, nl=False)
    else:
        rewrite(into, text)
