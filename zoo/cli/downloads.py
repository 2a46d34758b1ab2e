"""Confirmation of large downloads: a question on a terminal, `--yes` elsewhere."""

from __future__ import annotations

import shlex
import sys
from typing import Any

import click

from zoo.errors import SourceError

YES = f"{__name__}.yes"  # of a click context's meta


def _remember(ctx: click.Context, _: click.Parameter, yes: bool) -> None:
    ctx.meta[YES] = yes


yes_option: Any = click.option(
    "--yes",
    is_flag=True,
    expose_value=False,
    callback=_remember,
    help="Download without asking, even more than 1 GB.",
)


def ask(hub_id: str, nbytes: int) -> None:
    """Ask whether to download so many bytes. SourceError for a no, and without a terminal to ask on."""
    ctx = click.get_current_context(silent=True)
    if ctx is not None and ctx.meta.get(YES):
        return
    size = f"{nbytes / 1e9:.1f} GB"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        options = [] if ctx is None else [option for param in ctx.command.params for option in param.opts]
        words = ["zoo", *sys.argv[1:], "--yes"] if "--yes" in options else ["hf", "download", hub_id]
        raise SourceError(f"{hub_id}: {size} to download; type this to do so: {shlex.join(words)}")
    if not click.confirm(f"{hub_id}: download {size}?", err=True):
        raise SourceError(f"{hub_id}: nothing was downloaded")
