"""`zoo bench`: timed runs beside a peer's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from zoo.cli.complete import sources


@click.group()
def bench() -> None:
    """Time what the zoo does beside a peer that does the same, alternating, in processes of their own."""


@bench.command()
@click.argument("source", shell_complete=sources)
@click.option("--runs", type=int, default=5, show_default=True, help="Timed runs of each, after one warm-up.")
@click.option("--dtype", type=click.Choice(["float32", "float16", "bfloat16"]), help="Compute in this type.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the record to this JSON file."
)
def load(source: str, runs: int, dtype: str | None, out: Path | None) -> None:
    """Load SOURCE, beside MLX's reading of the same files."""
    from zoo.insight.bench import bench_load

    record = bench_load(source, runs, dtype, lambda line: click.echo(line, err=True))
    click.echo("\n".join(described(record)))
    if out is not None:
        from zoo.files import write_json

        write_json(out, record)
    else:
        click.echo(json.dumps(record, ensure_ascii=False), err=True)


LEAST_SECONDS = 0.1  # of the peer, and
LEAST_BYTES = 50e6  # held, below which a ratio measures the process and not the model


def described(record: dict[str, Any]) -> list[str]:
    """A record of `bench_load` in words; ratios where the model is large enough for them to say something."""
    zoo, mlx = record["zoo"], record["mlx"]
    slow, large = mlx["seconds"] >= LEAST_SECONDS, zoo["held"] >= LEAST_BYTES
    lines = [
        f"zoo.load {seconds(zoo['seconds'])}, mx.load and evaluation {seconds(mlx['seconds'])}"
        + (f": {record['ratio']:.2f} ×" if slow else ""),
        f"peak {zoo['peak'] / 1e6:,.0f} MB for {zoo['held'] / 1e6:,.0f} MB held"
        + (f": {record['peak_over_held']:.2f} ×" if large else ""),
    ]
    if not (slow and large):
        lines.append("the model is too small for ratios: most of this is what any load costs")
    return lines


def seconds(time: float) -> str:
    """A time in three digits: 1.23 s, 45.6 ms."""
    return f"{time:.3g} s" if time >= 1 else f"{time * 1000:.3g} ms"
