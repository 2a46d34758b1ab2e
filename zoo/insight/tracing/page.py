"""A trace as a page: one HTML file with its pictures, numbers, styles and scripts inside."""

from __future__ import annotations

import json
from importlib.resources import files

from zoo.insight.diagram.style import DARK, LIGHT, properties
from zoo.insight.tracing.story import Story

SCRIPTS = ("trace_base.js", "trace_layers.js", "trace_choice.js")


def page(story: Story) -> str:
    """The page of a story, which needs no other file and no network; text in it is escaped."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_asset("trace.html")).render(
        title=f"{story.architecture}: {story.prompt[:60]}",
        prompt=story.prompt,
        answer=story.text if not story.masks else "",
        about=_about(story),
        notes=story.notes,
        words=story.words,
        attends=any(layer.patterns for layer in story.layers),
        recurrent=any(not layer.patterns for layer in story.layers) and not story.notes,
        routes=any(layer.experts for layer in story.layers),
        lens=bool(story.lens),
        decides=bool(story.decisions),
        masks=bool(story.masks),
        uncovers=bool(story.uncoverings),
        style=_theme() + _asset("trace.css"),
        # Nothing in a text may end the element that holds it.
        data=json.dumps(story.to_json(), ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c"),
        script="\n".join(_asset(name) for name in SCRIPTS),
    )


def _about(story: Story) -> str:
    read = ", ".join(
        f"{len(track.pieces)} tokens" + (f" of the {track.name}" if len(story.tracks) > 1 else "")
        for track in story.tracks
    )
    return f"{story.architecture} · {len(story.layers)} layers · {read} · every value has its address, as in Python"


def _asset(name: str) -> str:
    return (files("zoo.insight") / "pages" / "assets" / name).read_text(encoding="utf-8")


def _theme() -> str:
    """The colours of both themes, chosen by the browser's wish or by the page's own switch."""
    light, dark = properties(LIGHT), properties(DARK)
    return (
        f":root{{{light}}}@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}"
        f":root[data-theme=dark]{{{dark}}}:root[data-theme=light]{{{light}}}\n"
    )
