"""`zoo bench`: timed runs beside a peer's."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.group()
def bench() -> None:
    """Time what the zoo does beside a peer that does the same, alternating, in processes of their own."""


@bench.command()
@click.argument("source")
@click.option("--runs", type=int, default=5, show_default=True, help="Timed runs of each, after one warm-up.")
@click.option("--dtype", type=click.Choice(["float32", "float16", "bfloat16"]), help="Compute in this type.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the record to this JSON file."
)
def load(source: str, runs: int, dtype: str | None, out: Path | None) -> None:
    """Load SOURCE, beside MLX's reading of the same files."""
    from zoo.bench import bench_load

    record = bench_load(source, runs, dtype, lambda line: click.echo(line, err=True))
    ours, theirs = record["zoo"], record["mlx"]
    click.echo(
        f"zoo.load {ours['seconds']:.2f} s, mx.load and evaluation {theirs['seconds']:.2f} s: {record['ratio']:.2f} ×"
    )
    click.echo(
        f"peak {ours['peak'] / 1e6:,.0f} MB for {ours['held'] / 1e6:,.0f} MB held: {record['peak_over_held']:.2f} ×"
    )
    if out is not None:
        from zoo.checkpoint.save import write_json

        write_json(out, record)
    else:
        click.echo(json.dumps(record, ensure_ascii=False), err=True)
