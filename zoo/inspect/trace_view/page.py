"""A trace as HTML: a page by itself, or some of its parts on a page of others. Imports no mlx."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from zoo.describe.language import check_language, in_language
from zoo.describe.pages.template import as_data, asset, filled
from zoo.describe.pages.template import page as page_of
from zoo.errors import ZooError
from zoo.inspect.trace_view.view import TraceView, ValueSummary

SCRIPTS = ("trace_base.js", "trace_cell.js", "trace_layers.js", "trace_choice.js", "trace_mount.js")
PARTS = ("pieces", "vectors", "layers", "lens", "output", "choice", "masks", "uncovering", "cache")
COMMENT_LINE = re.compile(r"^ *//.*\n", re.MULTILINE)
ALONE = ("experts",)  # a part of the layers that can also stand without the rest


def page(view: TraceView, language: str = "en") -> str:
    """The page of a view, which needs no other file and no network; text in it is escaped."""
    words = table(language)
    there = [name for name in PARTS if _has(view, name)]
    return page_of(
        "trace.html",
        ("page.js",),
        ("trace_page.css", "trace.css"),
        title=f"{view.architecture}: {view.prompt[:60]}",
        prompt=view.prompt,
        translated=len(view.tracks) > 1,
        answer=view.text if not view.masks else "",
        about=_about(view, words),
        table=words,
        language=language,
        trace=_parts(view, there, language, whole=True),
        mount=script(language),
    )


def embedded(view: TraceView, parts: Sequence[str], language: str = "en", layers: Sequence[int] = ()) -> str:
    """Some parts of a view for a page that has `script` and `style`, and the colours of diagrams as custom properties.

    `layers`: the numbers of those that are shown; () for all. Without scripts it has the pieces and the likeliest next
    tokens. ZooError for a part or a layer that the view does not have.
    """
    if missing := set(layers) - {layer.number for layer in view.layers}:
        raise ZooError(f"a trace of {view.architecture} has no layer {min(missing)}")
    if layers:
        chosen = (layer for layer in view.layers if layer.number in layers)
        view = replace(view, layers=tuple(chosen))
    for name in parts:
        if name not in (*PARTS, *ALONE) or not _has(view, name):
            there = ", ".join(part for part in (*PARTS, *ALONE) if _has(view, part))
            raise ZooError(f"a trace of {view.architecture} has no part {name!r}; it has {there}")
    return _parts(view, parts, language, whole=False)


@cache
def table(language: str) -> dict[str, str]:
    """The texts of the page itself, by name."""
    words: dict[str, str] = json.loads(asset(f"trace.{check_language(language)}.json"))
    return words


def script(language: str = "en") -> str:
    """The script that fills every trace of a document, with the texts of a language."""
    words = json.dumps(table(language), ensure_ascii=False, separators=(",", ":"))
    return "\n".join(
        (
            '"use strict";',
            "(() => {",
            f"const WORDS = {words};",
            *map(asset_without_comments, SCRIPTS),
            "})();\n",
        )
    )


def asset_without_comments(name: str) -> str:
    """The text of a script without the lines that are comments: their readers find them in the source."""
    return COMMENT_LINE.sub("", asset(name))


def style() -> str:
    """The style sheet of traces."""
    return asset("trace.css")


def data_of(view: TraceView, parts: Sequence[str], language: str, *, whole: bool) -> dict[str, Any]:
    """What the script is given of a view: with `whole` all, else no more than the parts need.

    Of the values of a layer only those that are drawn then keep their pictures, and of a layer with attention only what its
    own parts give is told.
    """
    if not whole:
        view = _without(view, parts)
    view = _translated(view, language)
    data = replace(view, vocabulary={id: view.vocabulary[id] for id in view.named_ids()}).to_json()
    del data["words"], data["notes"]
    for layer in data["layers"] if not whole else ():
        if layer["patterns"]:
            layer["stages"] = [stage for stage in layer["stages"] if "." not in stage["name"]]
        for stage in layer["stages"]:
            if layer["patterns"] or not stage["track"]:
                stage["strip"] = None
    return data


def _translated(view: TraceView, language: str) -> TraceView:
    """The view with summaries of values in a language."""

    def in_words(values: tuple[ValueSummary, ...]) -> tuple[ValueSummary, ...]:
        return tuple(replace(value, summary=in_language(value.summary, language)) for value in values)

    layers = tuple(replace(layer, stages=in_words(layer.stages)) for layer in view.layers)
    return replace(view, before=in_words(view.before), layers=layers, after=in_words(view.after))


def _without(view: TraceView, parts: Sequence[str]) -> TraceView:
    """The view without what only other parts need."""
    fields = {"vectors": "before", "output": "after", "choice": "decisions", "lens": "lens", "masks": "masks"}
    empty: dict[str, Any] = {field: () for part, field in fields.items() if part not in parts}
    if "layers" not in parts:
        routed = (layer for layer in view.layers if layer.experts and "experts" in parts)
        empty["layers"] = tuple(replace(layer, stages=(), patterns=()) for layer in routed)
    return replace(view, **empty)


def _has(view: TraceView, part: str) -> bool:
    """Whether there is anything to show in a part."""
    needs: dict[str, Any] = {
        "lens": view.lens,
        "experts": any(layer.experts for layer in view.layers),
        "choice": view.decisions,
        "masks": view.masks,
        "uncovering": view.unmasking,
    }
    return bool(needs.get(part, True))


def _parts(view: TraceView, parts: Sequence[str], language: str, *, whole: bool) -> str:
    words = table(language)
    return filled(
        "trace_parts.html",
        whole=whole,
        language=language,
        table=words,
        notes=[in_language(note, language) for note in view.notes] if whole else [],
        parts=[
            {
                "name": name,
                "heading": words[f"heading_{name}"],
                "texts": [in_language(text, language) for text in _texts(view, name)] if whole else [],
                "hint": words[hint] if (hint := _hint(view, name)) else "",
            }
            for name in parts
        ],
        rows=list(_rows(view)) if not whole else [],
        data=as_data(data_of(view, parts, language, whole=whole)),
    )


def _texts(view: TraceView, part: str) -> Iterator[str]:
    """The sentences that explain a part of this model."""
    names = {"choice": ("sampling",)}.get(part, (part,))
    if part == "layers":
        attends = ("attention",) if any(layer.patterns for layer in view.layers) else ()
        recurs = ("state",) if any(not layer.patterns for layer in view.layers) and not view.notes else ()
        routes = ("experts",) if any(layer.experts for layer in view.layers) else ()
        names = ("layers", *attends, *recurs, "feedforward", *routes)
    yield from (text for name in names if (text := view.words.get(name)))


def _hint(view: TraceView, part: str) -> str:
    """The name of the text that says how a part is used."""
    if part == "layers":
        return "hint_attention" if any(layer.patterns for layer in view.layers) else ""
    return f"hint_{part}" if part in ("pieces", "lens") else ""


def _rows(view: TraceView) -> Iterator[tuple[int, str, int, str]]:
    """Each token with its position and id, and the likeliest tokens after it where a generated one was chosen there."""
    track = view.tracks[-1]
    first = sum(piece.origin != "generated" for piece in track.pieces) - 1
    for position, piece in enumerate(track.pieces):
        chosen = position - first
        likely = view.decisions[chosen].candidates[:3] if 0 <= chosen < len(view.decisions) else ()
        yield position, piece.text, piece.id, ", ".join(view.vocabulary.get(id, f"[{id}]") for id in likely)


def _about(view: TraceView, words: dict[str, str]) -> str:
    key = "read_tokens_of" if len(view.tracks) > 1 else "read_tokens"
    read = words["comma"].join(
        words[key].format(count=len(track.pieces), track=words[f"track_{track.name}"])
        for track in view.tracks
    )
    return words["about"].format(architecture=view.architecture, layers=len(view.layers), read=read)
