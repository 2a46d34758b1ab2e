"""`zoo run SOURCE --prompts FILE --output FILE`: every prompt of a file, answered into another."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from zoo.cli.progress import Progress


def run_prompts(loaded: Any, prompts: Path, output: Path, settings: dict[str, Any]) -> None:
    """Answer the lines of `prompts` that `output` has no answer of, and say how many and how fast."""
    from zoo.generation.prompts_file import answered, read_prompts

    lines = read_prompts(loaded, prompts, settings)
    began, tokens, count = time.perf_counter(), 0, 0
    with Progress("answering") as report:
        for answer in answered(loaded, lines, output, report=report, **settings):
            count += 1
            tokens += answer["generated_tokens"]
    seconds = time.perf_counter() - began
    before = len(lines) - count
    found = f", {before} {'was' if before == 1 else 'were'} there" if before else ""
    rate = f" · {tokens / seconds:,.1f} tokens/s" if tokens else ""
    click.echo(f"{output}: {count} answers{found} · generated {tokens:,} tokens{rate}", err=True)
