"""What a shell completes where a command takes SOURCE."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def sources(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The architectures that begin like this, else files and folders."""
    from click.shell_completion import CompletionItem

    from zoo.host.registry import default_registry

    found = [
        CompletionItem(name, help=architecture.summary)
        for name, architecture in default_registry().architectures.items()
        if name.startswith(incomplete)
    ]
    return found or [CompletionItem(incomplete, type="file")]
