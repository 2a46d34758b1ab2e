"""`zoo compare`: models side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.cli.show import bullets
from zoo.cli.source_options import (
    FILE,
    complete_source,
    context_option,
    overwrite_option,
    quantize_option,
    yes_option,
)
from zoo.cli.terminal import table, wrapped, write_with_bold_lines
from zoo.errors import pluralize

if TYPE_CHECKING:
    from zoo.describe import Described
    from zoo.describe.facts.fact import FactRow
    from zoo.inspect.measure import Measured


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="A B …", shell_complete=complete_source)
@context_option
@quantize_option
@click.option("--measure", "measured", is_flag=True, help="Also run each here: speed and memory.")
@click.option("--all", "everything", is_flag=True, help="Also every fact, and every field of the recipes.")
@click.option("--svg", type=FILE, help="Write the diagrams, side by side, to a file.")
@click.option("--html", type=FILE, help="Write a page to explore to a file.")
@overwrite_option
@yes_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON: numbers with their units.")
def compare(
    names: tuple[str, ...],
    measured: bool,
    everything: bool,
    svg: Path | None,
    html: Path | None,
    overwrite: bool,
    as_json: bool,
    **counted: Any,
) -> None:
    """Compare architectures (llama), presets (llama:pocket), folders, hub ids or recipes in .json files, without weights.

    An architecture stands for its full-size preset; --measure runs its small checkpoint, or random weights. ≠ marks what
    differs in block diagrams and facts. The differences from the first model follow in words. With one name, --html
    writes the page of that model.
    """
    from zoo.cli.show import diagrams_of, presets_meant, print_diagrams, write_file
    from zoo.describe import aligned, common_context, fields_of
    from zoo.describe import compare as compare_sheets
    from zoo.describe.described import describe_each
    from zoo.describe.diagram import to_svg
    from zoo.files.writing import check_outputs
    from zoo.host.registry import default_registry

    check_outputs((svg, html), overwrite)
    registry = default_registry()
    found = describe_each(names, registry)
    common = common_context([one.recipe for one in found])
    context = common if counted["context"] is None else counted["context"]
    sheets = [one.sheet(registry, context, counted["quantize"]) for one in found]
    diagrams = diagrams_of(found, registry)
    figures = _measured(names) if measured else []
    if svg is not None:
        write_file(svg, to_svg(diagrams), overwrite)
    if html is not None:
        from zoo.describe.pages.comparison import compare_page

        page = compare_page(found, registry, measured=[one.facts() for one in figures], **counted)
        write_file(html, page, overwrite)
    if (svg or html) and not as_json:
        return
    titles, rows = [sheet.title for sheet in sheets], compare_sheets(sheets)
    different = _differences(found, titles)
    fields = aligned([fields_of(one.recipe) for one in found]) if everything else []
    if as_json:
        record: dict[str, Any] = {"models": titles, "rows": rows, "sheets": sheets, "differences": different}
        record |= {"fields": fields} if everything else {}
        record |= {"measured": [one.as_json() for one in figures]} if measured else {}
        click.echo(json.dumps(record, default=lambda one: one.to_json(), ensure_ascii=False, indent=1))
        return
    print_diagrams(diagrams, presets_meant(names, found))
    _print_rows([row for row in rows if everything or not row.detail], "", titles)
    for each in different:
        heading = wrapped(f"{each['to']}, compared with {each['from']}:")
        click.echo("\n" + bullets(each["sentences"] or ["nothing differs"], heading))
    if figures:
        _print_measured(figures, titles)
    if everything:
        click.echo()
        _print_rows(fields, "field", titles)


def _differences(found: Sequence[Described], titles: list[str]) -> list[dict[str, Any]]:
    """The differences of each model from the first, in sentences."""
    from zoo.describe.differences import differences

    return [
        {"from": titles[0], "to": title, "sentences": differences(found[0].recipe, one.recipe)}
        for title, one in zip(titles[1:], found[1:], strict=True)
    ]


def _measured(names: tuple[str, ...]) -> list[Measured]:
    """Measure each source on this machine, with a bar on the error stream."""
    from zoo.cli.progress import Progress
    from zoo.inspect.measure import measure

    with Progress("measuring", waits=True) as report:
        return measure(names, report=report)


def _print_measured(figures: Sequence[Measured], titles: list[str]) -> None:
    from zoo.describe import aligned

    first = figures[0]
    new = f", {pluralize(first.new_tokens, 'new token')}" if first.new_tokens else ""
    click.echo(f"\nMeasured on this machine, {pluralize(first.prompt_tokens, 'token')} read{new}:")
    _print_rows(aligned([one.facts() for one in figures]), "", titles)


def _print_rows(rows: Sequence[FactRow], label: str, titles: list[str]) -> None:
    """Print rows as a table. Those that differ begin with ≠ and, on a terminal, are bold."""
    marked = [["≠" if row.differs else " ", row.label, *row.texts] for row in rows if set(row.texts) != {"–"}]
    write_with_bold_lines(table(marked, [" ", label, *titles], repeated=2) + "\n", "≠")
