"""`zoo list`: the architectures that the zoo has."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sized
from typing import TYPE_CHECKING, Any

import click

from zoo.cli.terminal import columns, table, width, wrapped

if TYPE_CHECKING:
    from zoo.architecture import Architecture
    from zoo.host.registry import Registry


@click.command("list")
@click.argument("word", required=False)
@click.option("--all", "everything", is_flag=True, help="Also name those that other libraries' code runs.")
@click.option("--presets", is_flag=True, help="List the published checkpoints, with sizes and licences.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, those of other libraries included.")
def list_(word: str | None, everything: bool, presets: bool, as_json: bool) -> None:
    """List the architectures with their tasks. ● marks those with a checkpoint in the package.

    With WORD, such as qwen or translate, it lists those with the word in a name, a task, a preset or a summary.

    A line below counts the architectures that other libraries run. Where there is room, the table also has the base of
    each architecture, which it is a variant of, and its presets. --presets lists the published checkpoints, the smallest
    first.
    """
    from zoo.host.registry import default_registry

    registry = default_registry()
    if presets:
        if everything:
            raise click.UsageError("--all and --presets cannot be given together")
        _print_presets(registry, word, as_json)
        return
    every = registry.architectures | (registry.bridged if as_json else {})
    rows = [_row(name, one, registry) for name, one in every.items() if _has(word, _texts_about(name, one))]
    bridged = [name for name in registry.bridged if _has(word, [name])]
    _check_found(word, rows or bridged)
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False, indent=1))
        return
    if rows:
        _print_table(rows, registry)
    _print_bridged(bridged, everything or word is not None)


def _texts_about(name: str, architecture: Architecture) -> Iterator[str | None]:
    yield from (name, architecture.task, architecture.base, architecture.summary)
    for preset in architecture.presets:
        yield from (preset.name, *preset.aliases, preset.hub, preset.summary)


def _has(word: str | None, texts: Iterable[str | None]) -> bool:
    return word is None or any(word.lower() in text.lower() for text in texts if text)


def _check_found(word: str | None, found: Sized) -> None:
    if not found:
        raise click.UsageError(f"no name, preset or summary has {word!r}; `zoo list` shows all architectures")


def _row(name: str, architecture: Architecture, registry: Registry) -> dict[str, Any]:
    plugin = registry.plugin_of(architecture)
    return {
        "name": name,
        "task": architecture.task,
        "base": architecture.base,
        "presets": [preset.name for preset in architecture.presets],
        "embedded": any(preset.embedded for preset in architecture.presets),
        "summary": architecture.summary,
        "plugin": plugin.name,
        "distribution": plugin.distribution,
    }


def _print_table(rows: list[dict[str, Any]], registry: Registry) -> None:
    shown = ["name", "", "task", "base", "presets", "summary"]
    if any(not plugin.first_party for plugin in registry.plugins if plugin.gives):
        shown.append("from")
    cells = [
        row | {"": "●" * row["embedded"], "presets": ", ".join(row["presets"]), "from": row["distribution"]}
        for row in rows
    ]

    def drawn(names: list[str], room: int | None = None) -> str:
        return table([[row[name] or "" for name in names] for row in cells], names, room=room)

    room = columns()
    whole = drawn(shown, 10**6)
    if room is None or max(map(width, whole.splitlines())) <= room:
        click.echo(whole)
    else:
        click.echo(drawn([name for name in shown if name not in ("base", "presets")]))
    embedded = any(row["embedded"] for row in rows)
    marked = "● runs without a download: `zoo run NAME`. " if embedded else ""
    click.echo(wrapped(f"{marked}`zoo show NAME` describes any of them", first="\n"))


def _print_bridged(names: list[str], named: bool) -> None:
    """Print the number of architectures that other libraries run, with their names if `named`."""
    libraries: dict[str, list[str]] = {}
    for name in names:
        library, _, plain = name.partition("::")
        libraries.setdefault(library, []).append(plain)
    for library, those in libraries.items():
        count = "1 more runs" if len(those) == 1 else f"{len(those)} more run"
        line = f"{count} through {library}'s own code: {library}::NAME, or a checkpoint of their model_type"
        if named:
            click.echo(wrapped(f"{line}:", first="\n") + "\n")
            click.echo(wrapped(", ".join(those), columns() or 100, "  ", "  "))
        else:
            click.echo(wrapped(f"{line}; `zoo list --all` names them"))


def _print_presets(registry: Registry, word: str | None, as_json: bool) -> None:
    """Print the presets that a hub has, the smallest first: a table, or JSON with bytes."""
    from zoo.describe.facts.fact import text_of
    from zoo.loading import CONTEXT

    rows = [
        row
        for row in published_presets(registry)
        if _has(word, [*map(row.get, ("name", "architecture", "hub", "summary", "licence")), *row["aliases"]])
    ]
    rows.sort(key=lambda row: row["parameters"])
    _check_found(word, rows)
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False, indent=1))
        return
    cells = [
        [
            row["name"],
            row["summary"],
            text_of(row["parameters"], "parameters"),
            *(text_of(row[key], "bytes") for key in ("download_bytes", "memory_bytes")),
            row["licence"] or "–",
        ]
        for row in rows
    ]
    head = ["name", "what it does", "size", "download", "memory", "licence"]
    click.echo(table(cells, head, repeated=1))
    memory = f"Size: parameters. Memory: weights and a cache of up to {CONTEXT:,} tokens, in the type that this machine computes in."
    click.echo(wrapped(f"`zoo run NAME` asks before it downloads. {memory}", first="\n"))


def published_presets(registry: Registry) -> Iterator[dict[str, Any]]:
    """The presets with a hub repository. Memory is given where `download` is: other repositories may hold quantized weights."""
    from zoo.describe import describe
    from zoo.loading import memory_needed

    for name, architecture in registry.architectures.items():
        for preset in architecture.presets:
            if preset.hub is None or preset.config is None:
                continue
            described = describe(f"{name}:{preset.name}", registry)
            recipe = described.recipe
            yield {
                "name": next(iter(preset.aliases), f"{name}:{preset.name}"),
                "aliases": list(preset.aliases),
                "architecture": name,
                "preset": preset.name,
                "summary": preset.summary or described.architecture.task,
                "hub": preset.hub,
                "parameters": recipe.parameters(recipe.dim),
                "download_bytes": preset.download,
                "memory_bytes": None if preset.download is None else memory_needed(recipe),
                "licence": preset.licence,
            }
