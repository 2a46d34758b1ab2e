"""`zoo compare`: architectures side by side."""

from __future__ import annotations

import json

import click

from zoo.cli.complete import sources


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="A B …", shell_complete=sources)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def compare(names: tuple[str, ...], as_json: bool) -> None:
    """Compare architectures (llama), presets (llama:pocket), folders, hub ids or recipes in .json files, without weights.

    An architecture stands for its full-size preset. Rows that differ are marked with ≠.
    """
    from zoo.cli.show import described_source
    from zoo.cli.table import table
    from zoo.insight.facts import comparison, facts

    columns = {}
    for name in names:
        _, origin, recipe = described_source(name)
        columns[origin] = facts(recipe)
    rows = comparison(columns)
    if as_json:
        values = [
            {"field": n, "values": dict(zip(columns, v, strict=True)), "differs": d} for n, v, d in rows
        ]
        click.echo(json.dumps(values, ensure_ascii=False, indent=1))
        return
    marked = [["≠" if differs else " ", name, *values] for name, values, differs in rows]
    click.echo(table(marked, [" ", "field", *columns], repeated=2))
