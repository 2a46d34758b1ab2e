"""`zoo bench`: a checkpoint timed, alone or beside other engines."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import Any

import click

from zoo.cli.progress import Progress
from zoo.cli.source_options import (
    FILE,
    complete_source,
    dtype_option,
    overwrite_option,
    unpack_option,
    yes_option,
)
from zoo.cli.terminal import columns, facts, table


@click.command()
@click.argument("source", required=False, shell_complete=complete_source)
@click.option(
    "--suite",
    is_flag=True,
    help="Measure what machines are compared by, beside mlx-lm, in some ten minutes, and write a record; SOURCE may be left "
    "out, and a small model is downloaded then.",
)
@click.option(
    "--against",
    multiple=True,
    metavar="ENGINE",
    help="Run it by this one, too: mlx-lm, transformers, llama.cpp (a GGUF file), ctranslate2 (a translator), or mlx, which "
    "only reads the files.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="WORK",
    help="load, start, text (the first after loading), prefill, decode, batch, texts (reading included), translate or host; "
    "context, draft, turn and graph (operations, kernels and host time of a step as on a GPU), which are done only if asked for.",
)
@click.option("--prompt", type=int, default=512, show_default=True, help="Tokens that are read.")
@click.option("--new", type=int, default=64, show_default=True, help="Tokens that are written after them.")
@click.option("--rows", "texts", type=int, default=8, show_default=True, help="Texts of a batch.")
@click.option("--context", type=int, default=8192, show_default=True, help="Tokens of a long text.")
@click.option("--chat", type=int, default=2000, show_default=True, help="Tokens of a chat's first message.")
@click.option(
    "--runs",
    type=int,
    default=5,
    show_default=True,
    help="Timed runs of each, after one that is not counted.",
)
@dtype_option
@unpack_option
@click.option("--profile", is_flag=True, help="Show where the zoo's time goes, by the kind of block.")
@click.option("--record", type=FILE, help="Write the figures to this JSON file.")
@overwrite_option
@click.option("--compare", type=FILE, help="Show what changed since this record.")
@yes_option
@click.option("--json", "as_json", is_flag=True, help="Print the record as JSON.")
def bench(
    source: str | None,
    suite: bool,
    against: tuple[str, ...],
    only: tuple[str, ...],
    prompt: int,
    new: int,
    texts: int,
    context: int,
    chat: int,
    runs: int,
    dtype: str | None,
    unpack: bool | None,
    profile: bool,
    record: Path | None,
    overwrite: bool,
    compare: Path | None,
    as_json: bool,
) -> None:
    """Time SOURCE: loading, first token, prefill, decode, batches, the host's time a step, memory.

    Each engine runs in processes of its own, in turn with the others; figures are medians. Ids are random, nothing is sampled.
    Percentages are shares of what the machine's memory, or its products of matrices, allow. The machine should do nothing
    else meanwhile.
    """
    from zoo.files.writing import check_outputs, write_record
    from zoo_bench.benchmark import (
        SUITE,
        SUITE_ENGINES,
        SUITE_MODEL,
        SUITE_SECONDS,
        benchmark,
        compared,
        read_record,
        record_name,
    )
    from zoo_bench.engine import Lengths

    if source is None and not suite:
        raise click.UsageError("give a SOURCE to measure, or --suite")
    name = source or SUITE_MODEL
    if suite:
        against, only = against or SUITE_ENGINES, only or SUITE
        record = record or Path(record_name(name))
    check_outputs((record,), overwrite)
    old = read_record(compare) if compare is not None else None
    if source is None:
        _download(name)
    with Progress("measuring", waits=True) as report:
        measured = benchmark(
            name,
            against,
            lengths=Lengths(prompt, new, texts, context, chat),
            only=only,
            runs=runs,
            dtype=dtype,
            unpack=unpack,
            profile=profile,
            seconds=SUITE_SECONDS if suite else None,
            report=report,
        )
    if as_json:
        click.echo(json.dumps(measured, ensure_ascii=False, indent=1))
    else:
        head, *lines = rows(measured)
        click.echo(table(lines, head))
        if old is not None:
            click.echo(f"\nsince {compare}:\n{_changes(compared(measured, old))}")
        if profile:
            head, *lines = profile_rows(measured)
            click.echo("\n" + table(lines, head))
        click.echo("\n" + _about(measured))
    if record is not None:
        write_record(record, measured, overwrite, indent=2)
    if suite:
        click.echo(f"\nThe record is in {record}.", err=as_json)


def _download(hub_id: str) -> None:
    """Fetch a model that nobody named: it is asked for however small."""
    from zoo.checkpoint.hub import download
    from zoo.checkpoint.source import suffixes_of
    from zoo.host.registry import default_registry

    registry = default_registry()
    download(hub_id, None, registry, suffixes_of(registry), always_ask=True)


def rows(found: dict[str, Any]) -> list[list[str]]:
    """A record as the rows of a table, its head first: the metrics, a column an engine, and the zoo's as multiples of theirs.

    The zoo's rates have their share of the machine's limit with them, where that is known.
    """
    from zoo_bench.benchmark import share
    from zoo_bench.workloads import METRICS

    engines = found["engines"]
    peers = [name for name in engines if name != "zoo"]
    lines = [["", "zoo", *(column for peer in peers for column in (peer, f"zoo / {peer}"))]]
    for metric in METRICS:
        values = {engine: figures.get(metric.name) for engine, figures in engines.items()}
        if any(value is not None for value in values.values()):
            beside = (
                (format_value(values[peer], metric.unit), ratio(values["zoo"], values[peer]))
                for peer in peers
            )
            part = share(found, metric)
            cell = format_value(values["zoo"], metric.unit) + (f" ({part:.0%})" if part else "")
            lines.append([metric.label, cell, *chain.from_iterable(beside)])
    return lines


def profile_rows(found: dict[str, Any]) -> list[list[str]]:
    """A record's profile as the rows of a table, its head first: the kinds of block, and their shares of a pass."""
    passes: dict[str, dict[str, float]] = found["profile"]
    kinds = dict.fromkeys(kind for seconds in passes.values() for kind in seconds)
    wholes = {name: sum(seconds.values()) for name, seconds in passes.items()}
    return [
        ["", *(f"{name}, {format_value(whole, 's')}" for name, whole in wholes.items())],
        *([kind, *(f"{passes[name].get(kind, 0) / wholes[name]:.1%}" for name in passes)] for kind in kinds),
    ]


def ratio(own: float | None, other: float | None) -> str:
    """The zoo's value as a multiple of the other's."""
    return f"{own / other:.2f} ×" if own and other else "–"


def _changes(changes: list[tuple[str, float, float, float]]) -> str:
    """A table of changes since an older record, with a mark where it is worse."""
    from zoo_bench.workloads import metric_named

    worse = 0.95
    lines = []
    for name, old, new, times in changes:
        metric = metric_named(name)
        values = (format_value(value, metric.unit) for value in (old, new))
        lines.append([metric.label, *values, f"{times:.2f} × as good", "worse" if times < worse else ""])
    return table(lines, ["", "before", "now", "", ""])


def _about(found: dict[str, Any]) -> str:
    """The machine, the versions and the sizes of a record, in a few lines."""
    versions, limits = found["versions"], found["limits"]
    parts = [
        f"prompt {found['prompt']}, new {found['new']}, rows {found['rows']}",
        f"medians of {found['runs']}",
        versions["machine"],
        *([f"memory read at {limits['reading'] / 1e9:.3g} GB/s"] if limits else []),
        *([f"products at {limits['products'] / 1e9:,.0f} GFLOP/s"] if limits else []),
        f"{versions['backend']}, {versions['blas']}",
        *([f"{found['memory'] / 1e9:.0f} GB of memory"] if found.get("memory") else []),
        f"mlx {versions['mlx']}",
        *([f"mlx-lm {versions['mlx-lm']}"] if "mlx-lm" in versions else []),
        *([found["dtype"]] if found["dtype"] else []),
        *({None: [], True: ["unpacked"], False: ["packed"]}[found.get("unpack")]),
    ]
    return facts(parts, columns())


def format_value(value: float | None, unit: str) -> str:
    """A value with its unit, in three digits: 1.23 s, 45.6 ms, 123 tokens/s, 5.3 MB."""
    if value is None:
        return "–"
    if unit == "s":
        scale = next(
            ((factor, name) for factor, name in ((1, "s"), (1e3, "ms")) if value * factor >= 1), (1e6, "µs")
        )
        return f"{value * scale[0]:.3g} {scale[1]}"
    if unit == "bytes":
        return f"{value / 1e6:,.1f} MB" if value < 1e9 else f"{value / 1e9:.2f} GB"
    return f"{value:,.0f} {unit}".strip() if value >= 100 else f"{value:.3g} {unit}".strip()
