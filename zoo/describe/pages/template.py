"""Fills a template: one HTML file with its styles, scripts and data inside. Imports no mlx."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.describe.diagram.svg import DARK, LIGHT, properties

if TYPE_CHECKING:
    from jinja2 import Environment


def page(
    template: str, scripts: Sequence[str], styles: Sequence[str], *, data: object = None, **values: Any
) -> str:
    """The page of a template in `assets`, given `values`; text in them is escaped. It needs no other file and no network.

    `scripts` and `styles` are the names of files in `assets`; the colours of both themes come before them. `data` is what
    scripts find as JSON in the element `#data`.
    """
    return filled(
        template,
        style=theme() + "\n".join(map(asset, styles)),
        script="\n".join(map(asset, scripts)),
        data=as_data(data),
        **values,
    )


def filled(template: str, **values: Any) -> str:
    """A template in `assets`, given its values; text in them is escaped, unless the template calls it safe."""
    return environment().get_template(template).render(**values)


@cache
def environment(folder: Path | None = None) -> Environment:
    """What fills templates: those of `assets`, and of a folder, where there is one."""
    from jinja2 import ChoiceLoader, Environment, FileSystemLoader, FunctionLoader, StrictUndefined

    more = [FileSystemLoader(folder)] if folder else []
    return Environment(
        loader=ChoiceLoader([*more, FunctionLoader(asset)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def as_data(value: object) -> str:
    """A value as JSON within HTML: nothing in a text may end the element that holds it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def asset(name: str) -> str:
    """The text of a file in `assets`."""
    return (files("zoo.describe.pages") / "assets" / name).read_text(encoding="utf-8")


def theme() -> str:
    """The colours of both themes, chosen by the browser's wish or by the page's own switch."""
    light, dark = properties(LIGHT), properties(DARK)
    return "\n".join(
        (
            f":root{{{light}}}",
            f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}",
            f":root[data-theme=dark]{{{dark}}}",
            f":root[data-theme=light]{{{light}}}\n",
        )
    )
