"""`zoo show`: what one architecture is made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from zoo.cli.complete import sources


@click.command()
@click.argument("name", metavar="SOURCE", shell_complete=sources)
@click.option("--revision", metavar="NAME", help="A hub id's branch, tag or commit.")
@click.option("--recipe", "as_recipe", is_flag=True, help="Print the recipe alone, as JSON to edit.")
@click.option("--parameters", is_flag=True, help="Also every parameter's path, with its shape.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(name: str, revision: str | None, as_recipe: bool, parameters: bool, as_json: bool) -> None:
    """What SOURCE is made of: every field of its recipe, and its sums.

    SOURCE is an architecture (llama), one of its presets (llama:pocket), a folder or a hub id, of which the config
    alone is read, or a recipe in a .json file, as --recipe prints it.
    """
    from zoo.cli.table import table
    from zoo.host.registry import default_registry
    from zoo.insight.facts import facts

    if as_recipe and (parameters or as_json):
        raise click.UsageError("--recipe prints JSON of its own: leave --json and --parameters out")
    architecture, origin, recipe = described_source(name, revision)
    if as_recipe:
        click.echo(json.dumps(recipe.to_json(), ensure_ascii=False, indent=1))
        return
    plugin = default_registry().plugin_of(architecture)
    hub = next((p.hub for p in architecture.presets if origin == f"{architecture.name}:{p.name}"), None)
    about: dict[str, Any] = {
        "name": architecture.name,
        "summary": architecture.summary,
        "task": architecture.task,
        "base": architecture.base,
        "plugin": f"{plugin.name} ({plugin.distribution} {plugin.version})",
        "model types": list(architecture.model_types),
        "presets": [p.name for p in architecture.presets],
        "references": list(architecture.references),
        "described": f"{origin} ({hub})" if hub else origin,
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


def described_source(name: str, revision: str | None = None) -> tuple[Any, str, Any]:
    """The architecture of a source, what of it is described, and its recipe."""
    from zoo.checkpoint.source import find, is_architecture
    from zoo.errors import SourceError
    from zoo.host.recipes import read_recipe, recipe_architecture, recipe_config
    from zoo.host.registry import default_registry
    from zoo.insight.facts import described

    registry = default_registry()
    if name.endswith(".json") and not Path(name).is_dir():
        if not Path(name).is_file():
            raise SourceError(f"{name}: no such file")
        recipe = read_recipe(Path(name), registry)
        return recipe_architecture(recipe_config(recipe), registry), name, recipe
    if is_architecture(name, registry) or not ("/" in name or Path(name).exists()):
        if revision is not None:
            raise SourceError(f"{name}: has no revision {revision!r}: only a hub id has revisions")
        architecture, preset, recipe = described(name, registry)
        return architecture, f"{architecture.name}:{preset.name}", recipe
    from zoo.checkpoint.checkpoint import open_checkpoint

    checkpoint = open_checkpoint(find(name, registry, revision, weights=False).path, registry)
    architecture = checkpoint.architecture
    return architecture, str(checkpoint.path), architecture.recipe(checkpoint.config_of())


def _paths(recipe: Any) -> dict[str, list[tuple[int, ...]]]:
    """The shapes of the parameters at each path, the same parameters of all layers together."""
    from mlx.utils import tree_flatten

    from zoo.assemble import assemble
    from zoo.host.registry import default_registry

    found: dict[str, list[tuple[int, ...]]] = {}
    for path, array in tree_flatten(assemble(recipe, default_registry()).parameters()):
        shapes = found.setdefault(".".join("{i}" if step.isdigit() else step for step in path.split(".")), [])
        if array.shape not in shapes:
            shapes.append(array.shape)
    return found
