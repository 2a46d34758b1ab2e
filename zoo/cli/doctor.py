"""`zoo doctor`: this machine's backend, libraries and settings, and what would make it faster."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from zoo.cli.terminal import table
from zoo.machine import launched

PACKAGES = ("mlx-zoo", "mlx", "mlx-lm", "tokenizers", "safetensors", "huggingface_hub", "transformers")
SUMMED = 2**22  # floats of the large sum: 16 MiB


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _defaults() -> str:
    """The configuration file, the commands that it has defaults for, and the variables that set others."""
    from zoo.cli.defaults import config_path, read_config, variables
    from zoo.cli.program import command_table

    path, commands = config_path(), tuple(command_table().listed())
    tables = ", ".join(read_config(commands)) if path.exists() else "not there"
    return ", ".join([f"{path} ({tables or 'empty'})", *variables(commands)])


def _packed(memory: int | None) -> str:
    """How quantized matrices are multiplied on this machine."""
    from zoo import runtime

    if not memory or not runtime.keeps_floats(0):
        return "multiplied as they are"
    return f"kept as floats, too, up to {memory / 2**31:.1f} GiB of these: they multiply faster here"


def _gib(nbytes: int | None) -> str:
    return f"{nbytes / 2**30:.1f} GiB" if nbytes else "unknown"


def diagnose() -> dict[str, Any]:
    """Everything that `zoo doctor` prints, as a dictionary for JSON."""
    from huggingface_hub.constants import HF_HUB_CACHE

    from zoo import runtime

    cache = Path(HF_HUB_CACHE)
    memory = runtime.total_memory()
    return {
        "machine": runtime.machine(),
        "memory": _gib(memory),
        "usable memory": _gib(runtime.usable_memory()),
        "backend": runtime.backend(),
        "blas": runtime.blas(),
        "packed matrices": _packed(memory),
        "python": f"{platform.python_version()} ({sys.prefix})",
        "hub cache": f"{cache}{'' if cache.is_dir() else ' (empty)'}",
        "defaults": _defaults(),
        "versions": {package: _version(package) for package in PACKAGES},
        "advice": runtime.speed_advice(),
    }


def rank_diagnosis() -> dict[str, Any]:
    """What each rank is, and the measured links between them; all ranks call it. {} for a command that runs alone.

    `latency` is of a sum of one number over all ranks, in microseconds; `bandwidth`, of the bytes that each rank sends in a sum
    of many, in bytes a second. Both are medians.
    """
    from statistics import median

    import mlx.core as mx

    from zoo import runtime
    from zoo.inspect.timing import evaluation_seconds
    from zoo.runtime import ranks

    if ranks.size() == 1:
        return {}
    own = {
        "host": platform.node(),
        "machine": runtime.machine(),
        "memory": runtime.usable_memory(),
        "backend": runtime.backend(),
        "blas": runtime.blas(),
        "versions": {package: _version(package) for package in PACKAGES[:2]},
    }
    found = ranks.gathered(own)
    small, large = mx.zeros((1,)), mx.zeros((SUMMED,))
    mx.eval(small, large)
    latency = median(evaluation_seconds(lambda: ranks.all_sum(small), 101))
    seconds = median(evaluation_seconds(lambda: ranks.all_sum(large), 7))
    sent = 2 * (ranks.size() - 1) / ranks.size() * large.nbytes  # by each rank, in a ring
    links = {"latency": round(latency * 1e6, 1), "bandwidth": round(sent / seconds)}
    return {"ranks": found, "links": links}


def rank_advice(ranks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Advice to make the ranks faster, given what `rank_diagnosis` says of each, one line each."""
    hosts = {each["host"] for each in ranks}
    on_cpu = any(each["backend"] == "CPU" for each in ranks)
    if "MLX_HOSTFILE" not in os.environ or not on_cpu or len(hosts) == len(ranks):
        return []
    return [
        "`mlx.launch --backend mpi`, with Open MPI: ranks of the ring that share a machine slow each other down"
    ]


def _rank_rows(found: dict[str, Any]) -> list[list[str]]:
    rows = []
    for number, each in enumerate(found["ranks"]):
        memory = f"{each['memory'] / 2**30:.1f} GiB" if each["memory"] else "unknown memory"
        versions = ", ".join(f"{name} {version}" for name, version in each["versions"].items())
        what = (each["host"], each["machine"], memory, each["backend"], each["blas"], versions)
        rows.append([f"rank {number}", " · ".join(what)])
    links = found["links"]
    rows.append(
        [
            "links",
            f"{links['latency']:,.0f} µs for a small sum, {links['bandwidth'] / 1e9:.2f} GB/s in a large one",
        ]
    )
    return rows


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(as_json: bool) -> None:
    """Show this machine: backend, BLAS, memory, cache folders, versions, and what would make it faster.

    Started by `mlx.launch`, it also shows each rank, and measures the links between them.
    """
    ranks = rank_diagnosis() if launched() else {}
    found = diagnose() | ranks
    found["advice"] += rank_advice(ranks.get("ranks", ()))
    if as_json:
        click.echo(json.dumps(found, indent=1))
        return
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    rows = [[key, value] for key, value in found.items() if isinstance(value, str)] + [["versions", versions]]
    click.echo(table(rows + (_rank_rows(ranks) if ranks else [])))
    for line in found["advice"] or ["the zoo knows nothing that would make it faster"]:
        click.echo(f"→ {line}")  # unbroken: it may hold a command to be copied
