"""A trace as a page: one HTML file with its pictures and numbers inside."""

from __future__ import annotations

from zoo.insight.pages.page import page as page_of
from zoo.insight.tracing.view import TraceView

SCRIPTS = ("trace_base.js", "trace_layers.js", "trace_choice.js")


def page(view: TraceView) -> str:
    """The page of a view, which needs no other file and no network; text in it is escaped."""
    return page_of(
        "trace.html",
        SCRIPTS,
        ("trace.css",),
        data=view.to_json(),
        title=f"{view.architecture}: {view.prompt[:60]}",
        prompt=view.prompt,
        translated=len(view.tracks) > 1,
        answer=view.text if not view.masks else "",
        about=_about(view),
        notes=view.notes,
        words=view.words,
        attends=any(layer.patterns for layer in view.layers),
        recurrent=any(not layer.patterns for layer in view.layers) and not view.notes,
        routes=any(layer.experts for layer in view.layers),
        lens=bool(view.lens),
        decides=bool(view.decisions),
        masks=bool(view.masks),
        uncovers=bool(view.uncoverings),
    )


def _about(view: TraceView) -> str:
    read = ", ".join(
        f"{len(track.pieces)} tokens" + (f" of the {track.name}" if len(view.tracks) > 1 else "")
        for track in view.tracks
    )
    return f"{view.architecture} · {len(view.layers)} layers · {read} · every value has its address, as in Python"
