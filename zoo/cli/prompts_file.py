"""`zoo run SOURCE --prompts FILE`: answers each prompt of a file, into another file or to standard output."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.cli.progress import Progress

if TYPE_CHECKING:
    from zoo.loading import Loaded


def run_prompts(
    loaded: Loaded, prompts: Path, output: Path | None, settings: dict[str, Any], keep_going: bool
) -> None:
    """Answer the prompts that `output` does not answer yet, then print how many there were and how fast."""
    from zoo.generation.loop.prompts_file import answer_prompts, read_prompts

    lines = read_prompts(loaded, prompts, settings, keep_going=keep_going)
    began, tokens, count, failed = time.perf_counter(), 0, 0, 0
    target = sys.stdout if output is None else output
    with Progress("answering") as report:
        for answer in answer_prompts(loaded, lines, target, keep_going=keep_going, report=report, **settings):
            count += 1
            failed += "error" in answer
            tokens += answer.get("generated_tokens", 0)
    seconds = time.perf_counter() - began
    before = len(lines) - count
    found = f", {before} {'was' if before == 1 else 'were'} there" if before else ""
    errors = f", {failed} of them {'an error' if failed == 1 else 'errors'}" if failed else ""
    rate = f" · {tokens / seconds:,.1f} tokens/s" if tokens else ""
    what = f"{count} answer{'' if count == 1 else 's'}{errors}{found}"
    click.echo(f"{output or prompts}: {what} · generated {tokens:,} tokens{rate}", err=True)
