"""`zoo show`: the card of one model; its diagrams on the terminal and in files, as `zoo compare` has them too."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.cli.setting_options import cache_options, policy_of
from zoo.cli.source_options import (
    FILE,
    complete_source,
    context_option,
    overwrite_option,
    quantize_option,
    revision_option,
)
from zoo.cli.terminal import coloured, columns, facts, table, visible, wrapped, write, write_styled
from zoo.recipe.pipeline import WAYS

if TYPE_CHECKING:
    from zoo.checkpoint.weight_map import Pair, RuleEntry
    from zoo.describe import Cluster, Described, Sheet
    from zoo.describe.diagram import Diagram
    from zoo.host.registry import Registry
    from zoo.recipe import Model

PIPE = {1: 80}  # the width of one diagram in a pipe; of several OTHERS
OTHERS = 120
ANSI = {"title": "1", "quiet": "2", "line": "2", "differs": "1;33"}


class PairOfNumbers(click.ParamType):
    """A bandwidth and a latency, such as "5,300"."""

    name = "GB/s,µs"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, float]:
        """The two numbers. UsageError for anything else."""
        try:
            bandwidth, latency = map(float, value.split(","))
        except ValueError:
            self.fail(f"expected two numbers, GB/s,µs, got {value!r:.60}", param, ctx)
        return bandwidth, latency


@click.command()
@click.argument("name", metavar="SOURCE", shell_complete=complete_source)
@revision_option
@context_option
@quantize_option
@cache_options
@click.option(
    "--ranks", type=int, metavar="N", help="Also what each of N machines has of the model, and their speed."
)
@click.option("--parallel", type=click.Choice(WAYS), help="How these share the model (default: auto).")
@click.option(
    "--link",
    type=PairOfNumbers(),
    help="The link between two machines: its bandwidth, and the latency of a message.",
)
@click.option("--memory", type=float, metavar="GB/s", help="How fast a machine reads its memory, for decode.")
@click.option("--compute", type=float, metavar="TFLOP/s", help="How fast a machine multiplies, for prefill.")
@click.option(
    "--overhead",
    type=float,
    metavar="ms",
    help="What a pass takes beside matrices: Python, calls of kernels.",
)
@click.option("--all", "everything", is_flag=True, help="Also every fact, and every field of the recipe.")
@click.option("--parameters", is_flag=True, help="Also every parameter's path, with its shape.")
@click.option("--weights", is_flag=True, help="Also which tensors of a checkpoint become which parameters.")
@click.option("--rules", is_flag=True, help="Also the weight rules that the architecture declares.")
@click.option("--recipe", "as_recipe", is_flag=True, help="Print the recipe alone, as JSON to edit.")
@click.option("--svg", type=FILE, help="Write the block diagram to a file.")
@overwrite_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON: numbers with their units.")
def show(
    name: str,
    revision: str | None,
    everything: bool,
    as_recipe: bool,
    svg: Path | None,
    overwrite: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Show what SOURCE is made of: block diagram, facts, differences from its base architecture, references.

    SOURCE is an architecture (llama), one of its presets (llama:pocket), a folder or a hub id, or a recipe in a .json
    file, as --recipe prints it. Of a folder or a hub id only the config is read.
    """
    from zoo.checkpoint.weight_map import weight_names, weight_rules
    from zoo.describe import aligned, base_of, describe, fields_of
    from zoo.describe.diagram import to_svg
    from zoo.describe.differences import differences
    from zoo.describe.facts.counts import is_opaque
    from zoo.files.writing import check_outputs
    from zoo.host.registry import default_registry

    if as_recipe and (given["parameters"] or given["rules"] or as_json):
        raise click.UsageError("--recipe prints JSON of its own: leave --json, --parameters and --rules out")
    check_outputs((svg,), overwrite)
    registry = default_registry()
    found = describe(name, registry, revision)
    if as_recipe:
        _print_json(found.recipe.to_json())
        return
    diagrams = diagrams_of([found], registry)
    if svg is not None:
        write_file(svg, to_svg(diagrams), overwrite)
        if not as_json:
            return
    tokenizer, policy, cluster = found.tokenizer(registry), policy_of(given), _cluster(given)
    sheet = found.sheet(registry, given["context"], given["quantize"], tokenizer, policy, cluster)
    base = base_of(found, registry)
    words = [] if base is None else differences(base[1], found.recipe, sizes=False)
    fields = fields_of(found.recipe) if everything or (is_opaque(found.recipe) and not as_json) else []
    paths = _paths(found.recipe) if given["parameters"] else {}
    names = weight_names(found.architecture, found.recipe, registry) if given["weights"] else {}
    declared = weight_rules(found.architecture) if given["rules"] else {}
    if as_json:
        optional = {
            "differences": {} if base is None else {"from": base[0], "sentences": words},
            "fields": {fact.name: fact.to_json() for fact in fields},
            "parameters": paths,
            "weights": names,
            "rules": declared,
        }
        _print_json(_about(found, registry) | sheet.to_json() | {k: v for k, v in optional.items() if v})
        return
    print_diagrams(diagrams, presets_meant([name], [found]))
    sections = [_head(found, registry), _sheet(sheet, everything), *_lists(found, base and base[0], words)]
    if fields:
        sections.append(table([[row.label, row.texts[0]] for row in aligned([fields])], ["field", "value"]))
    sections.append(table([[path, " or ".join(map(str, shapes))] for path, shapes in paths.items()]))
    click.echo("\n\n".join(filter(None, [*sections, *_weight_tables(names, declared)])))


def _cluster(given: dict[str, Any]) -> Cluster | None:
    """The machines of `--ranks` and what says how fast they are; None without. UsageError for these without `--ranks`."""
    from zoo.describe import Cluster, Link

    ranks, link = given["ranks"], given["link"]
    if ranks is None:
        speed = ("parallel", "link", "memory", "compute", "overhead")
        if alone := [name for name in speed if given[name] is not None]:
            raise click.UsageError(f"--{alone[0]} is about several machines: give --ranks, too")
        return None
    return Cluster(
        ranks,
        given["parallel"] or "auto",
        None if link is None else Link(link[0] * 1e9, link[1] * 1e-6),
        None if given["memory"] is None else given["memory"] * 1e9,
        None if given["compute"] is None else given["compute"] * 1e12,
        overhead=(given["overhead"] or 0.0) * 1e-3,
    )


def _print_json(value: object) -> None:
    click.echo(json.dumps(value, default=vars, ensure_ascii=False, indent=1))


def _lists(found: Described, base: str | None, differences: Sequence[str]) -> Iterator[str]:
    """The differences from the base architecture, the references, and the commands that run it or train a small one."""
    from zoo.describe.described import how_to_run

    if base is not None:
        title = f"What differs from {base}:" if differences else f"With the same numbers it is {base}."
        yield bullets(differences, title)
    if found.architecture.references:
        yield bullets(found.architecture.references, "References:")
    if runs := how_to_run(found):
        lines = (f"{command} ({remark})" if remark else command for command, remark in runs)
        yield "\n".join(["Run it:", *(wrapped(line, first="  ", later="    ") for line in lines)])


def bullets(sentences: Iterable[str], title: str) -> str:
    """Sentences below a title, as a list that fits the terminal."""
    return "\n".join([title, *(wrapped(sentence, first="- ", later="  ") for sentence in sentences)])


def _weight_tables(names: dict[str, list[Pair]], declared: dict[str, list[RuleEntry]]) -> Iterator[str]:
    """The tables of a checkpoint's tensors and of the weight rules, one a layout, which the first column names."""

    for layout, pairs in names.items():
        rows = [[" + ".join(pair.tensors), " + ".join(pair.parameters)] for pair in pairs]
        yield table(rows, [f"tensor, layout {layout}" if len(names) > 1 else "tensor", "parameter"])
    for layout, entries in declared.items():
        rows = [[entry.rule, entry.source, " + ".join(entry.targets)] for entry in entries]
        first = f"rule, layout {layout}" if len(declared) > 1 else "rule"
        yield table(rows, [first, "pattern of tensors", "parameter"])


def _about(found: Described, registry: Registry) -> dict[str, Any]:
    """The architecture's record, for JSON."""
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
        "published": architecture.published,
        "described": f"{found.origin} ({hub})" if hub else found.origin,
    }


def _head(found: Described, registry: Registry) -> str:
    """The title, origin and presets, in a few lines."""
    about = _about(found, registry)
    hub = found.preset.hub if found.preset else None
    parts = [found.origin, *([hub] if hub else []), f"task {about['task']}", f"plugin {about['plugin']}"]
    if types := about["model_types"]:
        parts.append(f"model_type {', '.join(types)}")
    if others := [preset for preset in about["presets"] if found.origin != f"{about['name']}:{preset}"]:
        parts.append(f"other presets: {', '.join(others)}")
    name, small = found.architecture.name, found.architecture.preset()
    lines = [wrapped(f"{name}: {about['summary']}" if about["summary"] else name), facts(parts)]
    if found.preset is not None and small is not None and small.embedded and small != found.preset:
        runs = f"`zoo run {name}` runs {name}:{small.name}, the small checkpoint of the package."
        lines.append(wrapped(f"This is {found.origin}. {runs}"))
    return "\n".join(lines)


def _sheet(sheet: Sheet, everything: bool) -> str:
    """The fact sheet in about fifteen rows, or with every fact in its own row, and the notes below."""
    from zoo.describe import SheetLine, aligned, short

    rows = aligned([sheet.facts])
    lines = [SheetLine(row.label, row.texts[0], (row.name,)) for row in rows] if everything else short(sheet)
    labels = {name: line.label for line in lines for name in line.names}
    notes = {
        fact.note: labels[fact.name] for fact in reversed(sheet.facts) if fact.note and fact.name in labels
    }
    notes_below = [wrapped(f"{label.partition(',')[0]}: {note}") for note, label in notes.items()]
    return "\n".join([table([[line.label, line.text] for line in lines]), "", *notes_below]).rstrip()


def _paths(recipe: Model) -> dict[str, list[tuple[int, ...]]]:
    """The shapes of the parameters at each path, with the layers' numbers as {i}."""
    from mlx.utils import tree_flatten

    from zoo.assemble import assemble
    from zoo.host.registry import default_registry

    found: dict[str, list[tuple[int, ...]]] = {}
    for path, array in tree_flatten(assemble(recipe, default_registry()).parameters()):
        shapes = found.setdefault(".".join("{i}" if step.isdigit() else step for step in path.split(".")), [])
        if array.shape not in shapes:
            shapes.append(array.shape)
    return found


def diagrams_of(found: Sequence[Described], registry: Registry) -> tuple[Diagram, ...]:
    """The diagrams of some described models, what differs marked."""
    from zoo.describe.diagram import diagram_of, marked

    return marked([diagram_of(one.recipe, one.origin, registry) for one in found])


def presets_meant(names: Sequence[str], found: Sequence[Described]) -> str:
    """Returns a line for each architecture's name that `zoo show` and `zoo run` resolve to different presets."""
    from zoo.describe.described import command_of

    lines = []
    for name, one in zip(names, found, strict=True):
        architecture, run = one.architecture, one.architecture.preset()
        plain = name.rpartition("::")[2].lower()
        if run is not None and one.preset not in (None, run) and plain == architecture.name.lower():
            command = f"`zoo {command_of(architecture.task)} {name}` runs {architecture.name}:{run.name}"
            lines.append(wrapped(f"{name} is {one.origin} here; {command}") + "\n")
    return "".join(dict.fromkeys(lines))


def print_diagrams(diagrams: Sequence[Diagram], before: str = "") -> None:
    """Print diagrams side by side where they fit; in colours on a terminal, unless NO_COLOR or TERM=dumb is set."""
    from zoo.describe.diagram.terminal import to_spans

    write(before)
    styled = coloured()
    lines = []
    for line in to_spans(diagrams, columns() or PIPE.get(len(diagrams), OTHERS)):
        spans = ((ANSI.get(style), visible(text) if styled else text) for style, text in line)
        lines.append(
            "".join(f"\x1b[{code}m{text}\x1b[0m" if styled and code else text for code, text in spans)
        )
    text = "\n".join(lines) + "\n\n"
    (write_styled if styled else write)(text)


def write_file(path: Path, text: str, overwrite: bool) -> None:
    """Write a picture or a page whole, and report it on the error stream; ZooError when it cannot be written."""
    from zoo.files.writing import write_markup

    write_markup(path, text, overwrite)
    click.echo(f"wrote {path}", err=True)
