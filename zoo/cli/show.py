"""`zoo show`: the card of one model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from zoo.cli.complete import sources
from zoo.cli.setting_options import cache_options, policy_of
from zoo.cli.source_options import overwrite_option, revision_option


@click.command()
@click.argument("name", metavar="SOURCE", shell_complete=sources)
@revision_option
@click.option("--context", type=int, metavar="N", help="Tokens for which cache and FLOPs are computed.")
@click.option(
    "--quantize", metavar="FORMAT", help="Format in which weights are counted: bfloat16, 8, 4, mxfp4, …"
)
@cache_options
@click.option("--all", "everything", is_flag=True, help="Also every fact, and every field of the recipe.")
@click.option("--parameters", is_flag=True, help="Also every parameter's path, with its shape.")
@click.option("--weights", is_flag=True, help="Also which tensors of a checkpoint become which parameters.")
@click.option("--rules", is_flag=True, help="Also the weight rules that the architecture declares.")
@click.option("--recipe", "as_recipe", is_flag=True, help="Print the recipe alone, as JSON to edit.")
@click.option(
    "--svg", type=click.Path(path_type=Path, dir_okay=False), help="Write the block diagram to a file."
)
@overwrite_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON: numbers with their units.")
def show(
    name: str,
    revision: str | None,
    context: int | None,
    quantize: str | None,
    everything: bool,
    parameters: bool,
    weights: bool,
    rules: bool,
    as_recipe: bool,
    svg: Path | None,
    overwrite: bool,
    as_json: bool,
    **cache: Any,
) -> None:
    """What SOURCE is made of: its block diagram, its facts, what differs from the architecture that it is a variant of, references.

    SOURCE is an architecture (llama), one of its presets (llama:pocket), a folder or a hub id, of which the config
    alone is read, or a recipe in a .json file, as --recipe prints it.
    """
    from zoo.checkpoint.weight_map import weight_rules
    from zoo.cli.drawn import diagrams_of, print_diagrams, write_file
    from zoo.describe import base_of, describe, fields_of
    from zoo.describe.differences import differences
    from zoo.describe.facts.stacks import is_opaque
    from zoo.files import check_outputs
    from zoo.host.registry import default_registry

    if as_recipe and (parameters or rules or as_json):
        raise click.UsageError("--recipe prints JSON of its own: leave --json, --parameters and --rules out")
    check_outputs((svg,), overwrite)
    registry = default_registry()
    found = describe(name, registry, revision)
    if as_recipe:
        click.echo(json.dumps(found.recipe.to_json(), ensure_ascii=False, indent=1))
        return
    diagrams = diagrams_of([found], registry)
    if svg is not None:
        from zoo.describe.diagram import to_svg

        write_file(svg, to_svg(diagrams), overwrite)
        if not as_json:
            return
    sheet = found.sheet(registry, context, quantize, found.tokenizer(registry), policy_of(cache))
    base = base_of(found, registry)
    words = None if base is None else differences(base[1], found.recipe, sizes=False)
    paths = _paths(found.recipe) if parameters else {}
    names = _names(found, registry) if weights else {}
    declared = weight_rules(found.architecture) if rules else {}
    if as_json:
        about: dict[str, Any] = _about(found, registry) | sheet.to_json()
        if base is not None:
            about["differences"] = {"from": base[0], "sentences": words}
        if everything:
            about["fields"] = {fact.name: fact.to_json() for fact in fields_of(found.recipe)}
        if parameters:
            about["parameters"] = paths
        if weights:
            about["weights"] = names
        if rules:
            about["rules"] = {layout: [vars(entry) for entry in rows] for layout, rows in declared.items()}
        click.echo(json.dumps(about, ensure_ascii=False, indent=1))
        return
    print_diagrams(diagrams)
    sections = [_head(found, registry), _sheet(sheet, everything)]
    if words is not None and base is not None:
        sections.append(_differences(words, base[0], bool(found.config)))
    sections += [_references(found), _how_to_run(found)]
    if everything or is_opaque(found.recipe):
        sections.append(_fields(fields_of(found.recipe)))
    if parameters:
        sections.append(_table([[path, " or ".join(map(str, s))] for path, s in paths.items()]))
    sections += [_names_table(layout, pairs, len(names) > 1) for layout, pairs in names.items()]
    sections += [_rules_table(layout, rows, len(declared) > 1) for layout, rows in declared.items()]
    click.echo("\n\n".join(section for section in sections if section))


def described_source(name: str, revision: str | None = None) -> tuple[Any, str, Any]:
    """The architecture of a source, what of it is described, and its recipe."""
    from zoo.describe import describe
    from zoo.host.registry import default_registry

    found = describe(name, default_registry(), revision)
    return found.architecture, found.origin, found.recipe


def bullets(sentences: list[str]) -> str:
    """Sentences as a list that fits the terminal."""
    from zoo.cli.table import wrapped
    from zoo.cli.terminal import columns

    return "\n".join(wrapped(sentence, columns(), "- ", "  ") for sentence in sentences)


def _about(found: Any, registry: Any) -> dict[str, Any]:
    """What the architecture's record holds."""
    architecture = found.architecture
    plugin = registry.plugin_of(architecture)
    hub = found.preset.hub if found.preset else None
    return {
        "name": architecture.name,
        "summary": architecture.summary,
        "task": architecture.task,
        "base": architecture.base,
        "plugin": f"{plugin.name} ({plugin.distribution} {plugin.version})",
        "model_types": list(architecture.model_types),
        "presets": [preset.name for preset in architecture.presets],
        "references": list(architecture.references),
        "described": f"{found.origin} ({hub})" if hub else found.origin,
    }


def _head(found: Any, registry: Any) -> str:
    """What is described, in a few lines."""
    from zoo.cli.table import facts, wrapped
    from zoo.cli.terminal import columns

    about = _about(found, registry)
    hub = found.preset.hub if found.preset else None
    parts = [found.origin, *([hub] if hub else []), f"task {about['task']}", f"plugin {about['plugin']}"]
    if types := about["model_types"]:
        parts.append(f"model_type {', '.join(types)}")
    if others := [preset for preset in about["presets"] if found.origin != f"{about['name']}:{preset}"]:
        parts.append(f"other presets: {', '.join(others)}")
    title = f"{about['name']}: {about['summary']}" if about["summary"] else about["name"]
    lines = [wrapped(title, columns()), facts(parts, columns())]
    if runs := _what_runs(found):
        lines.append(wrapped(runs, columns()))
    return "\n".join(lines)


def _what_runs(found: Any) -> str:
    """Which checkpoint the architecture's name runs, where that is not the one described; "" otherwise."""
    name, small = found.architecture.name, found.architecture.preset()
    if found.preset is None or small is None or not small.embedded or small == found.preset:
        return ""
    return f"This is {found.origin}. `zoo run {name}` runs {name}:{small.name}, the small checkpoint of the package."


def _sheet(sheet: Any, everything: bool) -> str:
    """The facts in some fifteen rows, or each in its own, and the notes on them."""
    from zoo.cli.table import wrapped
    from zoo.cli.terminal import columns
    from zoo.describe import Line, aligned, short

    rows = aligned([sheet.facts])
    lines = [Line(row.label, row.texts[0], (row.name,)) for row in rows] if everything else short(sheet)
    labels = {name: line.label for line in lines for name in line.names}
    notes = {
        fact.note: labels[fact.name] for fact in reversed(sheet.facts) if fact.note and fact.name in labels
    }
    notes_below = [wrapped(f"{label.partition(',')[0]}: {note}", columns()) for note, label in notes.items()]
    return "\n".join([_table([[line.label, line.text] for line in lines]), "", *notes_below]).rstrip()


def _differences(words: list[str], base: str, same_numbers: bool) -> str:
    if not words:
        return f"With the same numbers it is {base}."
    return f"What differs from {base}:\n{bullets(words)}"


def _references(found: Any) -> str:
    return (
        f"References:\n{bullets(list(found.architecture.references))}"
        if found.architecture.references
        else ""
    )


def _how_to_run(found: Any) -> str:
    """The commands that run it, or train a small one."""
    from zoo.cli.table import wrapped
    from zoo.cli.terminal import columns
    from zoo.describe.how_to_run import how_to_run

    lines = [f"{command} ({remark})" if remark else command for command, remark in how_to_run(found)]
    if not lines:
        return ""
    return "\n".join(["Run it:", *(wrapped(line, columns(), "  ", "    ") for line in lines)])


def _fields(facts: Any) -> str:
    from zoo.describe import aligned

    return _table([[row.label, row.texts[0]] for row in aligned([facts])], ["field", "value"])


def _names(found: Any, registry: Any) -> dict[str, list[dict[str, list[str]]]]:
    """The tensors of each layout, and the parameters that they become."""
    from zoo.checkpoint.weight_map import weight_names

    return {
        layout: [{"tensors": list(p.tensors), "parameters": list(p.parameters)} for p in pairs]
        for layout, pairs in weight_names(found.architecture, found.recipe, registry).items()
    }


def _names_table(layout: str, pairs: list[dict[str, list[str]]], several: bool) -> str:
    rows = [[" + ".join(pair["tensors"]), " + ".join(pair["parameters"])] for pair in pairs]
    return _table(rows, [f"tensor, layout {layout}" if several else "tensor", "parameter"])


def _rules_table(layout: str, entries: list[Any], several: bool) -> str:
    rows = [[entry.rule, entry.source, " + ".join(entry.targets)] for entry in entries]
    return _table(rows, [f"rule, layout {layout}" if several else "rule", "pattern of tensors", "parameter"])


def _table(rows: list[list[str]], head: list[str] | None = None) -> str:
    from zoo.cli.table import table

    return table(rows, head)


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
