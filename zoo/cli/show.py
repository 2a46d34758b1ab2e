"""`zoo show`: what one architecture is made of."""

from __future__ import annotations

import json
from typing import Any

import click


@click.command()
@click.argument("name", metavar="ARCH")
@click.option("--parameters", is_flag=True, help="Also every parameter's path, with its shape.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(name: str, parameters: bool, as_json: bool) -> None:
    """What ARCH (llama), one of its presets (llama:pocket) or a folder holds: every field of its recipe, and its sums."""
    from zoo.cli.table import table
    from zoo.insight.facts import described, facts
    from zoo.registry import registry

    architecture, preset, recipe = described(name, registry())
    plugin = registry().plugin_of(architecture)
    about: dict[str, Any] = {
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
    paths = _paths(recipe) if parameters else {}
    if as_json:
        about |= {"facts": facts(recipe), **({"parameters": paths} if parameters else {})}
        click.echo(json.dumps(about, ensure_ascii=False, indent=1))
        return
    rows = [[k, "; ".join(v) if isinstance(v, list) else v] for k, v in about.items() if v]
    click.echo(table(rows))
    click.echo()
    click.echo(table([[key, value] for key, value in facts(recipe).items()]))
    if parameters:
        click.echo()
        click.echo(table([[path, " or ".join(map(str, shapes))] for path, shapes in paths.items()]))


def _paths(recipe: Any) -> dict[str, list[tuple[int, ...]]]:
    """The shapes of the parameters at each path, the layers' taken together: what weight rules lead to."""
    from mlx.utils import tree_flatten

    from zoo.assemble import assemble

    found: dict[str, list[tuple[int, ...]]] = {}
    for path, array in tree_flatten(assemble(recipe).parameters()):
        shapes = found.setdefault(".".join("{i}" if step.isdigit() else step for step in path.split(".")), [])
        if array.shape not in shapes:
            shapes.append(array.shape)
    return found
