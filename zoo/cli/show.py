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
@click.option("--parameters", is_flag=True, help="Also every parameter's path, with its shape.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(name: str, revision: str | None, parameters: bool, as_json: bool) -> None:
    """What SOURCE is made of: every field of its recipe, and its sums.

    SOURCE is an architecture (llama), one of its presets (llama:pocket), a folder or a hub id, of which the config
    alone is read.
    """
    from zoo.cli.table import table
    from zoo.host.registry import default_registry
    from zoo.insight.facts import facts

    architecture, origin, recipe = described_source(name, revision)
    plugin = default_registry().plugin_of(architecture)
    about: dict[str, Any] = {
        "name": architecture.name,
        "summary": architecture.summary,
        "task": architecture.task,
        "base": architecture.base,
        "plugin": f"{plugin.name} ({plugin.distribution} {plugin.version})",
        "model types": list(architecture.model_types),
        "presets": [p.name for p in architecture.presets],
        "references": list(architecture.references),
        "told of": origin,
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
    """The architecture that a source is of, what is told of, and its recipe."""
    from zoo.checkpoint.source import find, is_architecture
    from zoo.errors import SourceError
    from zoo.host.registry import default_registry
    from zoo.insight.facts import described

    registry = default_registry()
    if is_architecture(name, registry) or not ("/" in name or Path(name).exists()):
        if revision is not None:
            raise SourceError(f"{name}: has no revision {revision!r}: only a hub id has revisions")
        architecture, preset, recipe = described(name, registry)
        hub = f" ({preset.hub})" if preset.hub else ""
        return architecture, f"{architecture.name}:{preset.name}{hub}", recipe
    from zoo.checkpoint.checkpoint import open_checkpoint

    checkpoint = open_checkpoint(find(name, registry, revision, weights=False).path, registry)
    architecture = checkpoint.architecture
    return architecture, str(checkpoint.path), architecture.recipe(checkpoint.config_of())


def _paths(recipe: Any) -> dict[str, list[tuple[int, ...]]]:
    """The shapes of the parameters at each path, the layers' taken together: what weight rules lead to."""
    from mlx.utils import tree_flatten

    from zoo.assemble import assemble
    from zoo.host.registry import default_registry

    found: dict[str, list[tuple[int, ...]]] = {}
    for path, array in tree_flatten(assemble(recipe, default_registry()).parameters()):
        shapes = found.setdefault(".".join("{i}" if step.isdigit() else step for step in path.split(".")), [])
        if array.shape not in shapes:
            shapes.append(array.shape)
    return found
