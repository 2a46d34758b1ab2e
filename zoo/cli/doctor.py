"""`zoo doctor`: this machine's backend, libraries and settings, and what would make it faster."""

from __future__ import annotations

import json
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from zoo.cli.terminal import table

PACKAGES = ("mlx-zoo", "mlx", "mlx-lm", "tokenizers", "safetensors", "huggingface_hub", "transformers")


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

    if runtime.on_gpu() or not memory:
        return "multiplied as they are"
    return f"kept as floats, too, up to {memory / 2**31:.1f} GiB of these: they multiply faster here"


def diagnose() -> dict[str, Any]:
    """Everything that `zoo doctor` prints, as a dictionary for JSON."""
    from huggingface_hub.constants import HF_HUB_CACHE

    from zoo import runtime

    cache = Path(HF_HUB_CACHE)
    memory = runtime.total_memory()
    return {
        "machine": runtime.machine(),
        "memory": f"{memory / 2**30:.1f} GiB" if memory else "unknown",
        "backend": runtime.backend(),
        "blas": runtime.blas(),
        "packed matrices": _packed(memory),
        "python": f"{platform.python_version()} ({sys.prefix})",
        "hub cache": f"{cache}{'' if cache.is_dir() else ' (empty)'}",
        "defaults": _defaults(),
        "versions": {package: _version(package) for package in PACKAGES},
        "advice": runtime.speed_advice(),
    }


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(as_json: bool) -> None:
    """Show this machine: backend, BLAS, memory, cache folders, versions, and what would make it faster."""
    found = diagnose()
    if as_json:
        click.echo(json.dumps(found, indent=1))
        return
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    rows = [[key, value] for key, value in found.items() if isinstance(value, str)] + [["versions", versions]]
    click.echo(table(rows))
    for line in found["advice"] or ["nothing that the zoo knows of would make it faster"]:
        click.echo(f"→ {line}")  # unbroken: it may hold a command to be copied
