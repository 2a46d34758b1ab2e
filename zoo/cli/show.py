"""`zoo show`: what one architecture is made of."""

from __future__ import annotations

import json

import click


@click.command()
@click.argument("name", metavar="ARCH")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(name: str, as_json: bool) -> None:
    """What ARCH (llama), one of its presets (llama:pocket) or a folder holds: every field of its recipe, and its sums."""
    from zoo.cli.table import table
    from zoo.insight.facts import described, facts
    from zoo.registry import registry

    architecture, preset, recipe = described(name, registry())
    plugin = registry().plugin_of(architecture)
    about = {
        "name": architecture.name,
        "summary": architecture.summary,
        "task": architecture.task,
        "base": architecture.base,
        "plugin": f"{plugin.name} ({plugin.distribution} {plugin.version})",
        "model types": list(architecture.model_types),
        "presets": [p.name for p in architecture.presets],
        "references": list(architecture.references),
        "told of": f"{architecture.name}:{preset.name}" + (f" ({preset.hub})" if preset.hub else ""),
    }
    if as_json:
        click.echo(json.dumps({**about, "facts": facts(recipe)}, ensure_ascii=False, indent=1))
        return
    rows = [[k, "; ".join(v) if isinstance(v, list) else v] for k, v in about.items() if v]
    click.echo(table(rows))
    click.echo()
    click.echo(table([[key, value] for key, value in facts(recipe).items()]))
