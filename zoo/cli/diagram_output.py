"""Diagrams on the terminal and in files, for `zoo show` and `zoo compare`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from zoo.cli.terminal import coloured, columns, visible, write, write_styled

PIPE = {1: 80}  # the width of one diagram in a pipe; of several OTHERS
OTHERS = 120
ANSI = {"title": "1", "quiet": "2", "line": "2", "differs": "1;33"}


def diagrams_of(found: Sequence[Any], registry: Any) -> Any:
    """The diagrams of some described models, what differs marked."""
    from zoo.describe.diagram import diagram_of, marked

    return marked([diagram_of(one.recipe, one.origin, registry) for one in found])


def print_diagrams(diagrams: Sequence[Any]) -> None:
    """Print diagrams side by side where they fit; in colours on a terminal, unless NO_COLOR or TERM=dumb is set."""
    from zoo.describe.diagram.terminal import to_spans

    styled = coloured()
    lines = []
    for line in to_spans(diagrams, columns() or PIPE.get(len(diagrams), OTHERS)):
        spans = ((ANSI.get(style), visible(text) if styled else text) for style, text in line)
        lines.append(
            "".join(f"\x1b[{code}m{text}\x1b[0m" if styled and code else text for code, text in spans)
        )
    text = "\n".join(lines) + "\n\n"
    (write_styled if styled else write)(text)


def write_svg(path: Path, diagrams: Sequence[Any], overwrite: bool) -> None:
    """Write diagrams side by side to an SVG file."""
    from zoo.describe.diagram import to_svg

    write_file(path, to_svg(diagrams), overwrite)


def write_file(path: Path, text: str, overwrite: bool) -> None:
    """Write a picture or a page whole, and report it on the error stream; ZooError when it cannot be written."""
    from zoo.files.writing import write_markup

    write_markup(path, text, overwrite)
    click.echo(f"wrote {path}", err=True)
