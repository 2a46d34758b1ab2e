"""A run of an embedded checkpoint as an interactive picture, computed when the docs are built."""

from __future__ import annotations

import json
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from building.build_cache import cached_result
from building.live import MODELS
from building.live_page import FOLDER, live_hash, words

SETTINGS = {"max-tokens": int, "temperature": float, "seed": int}
SCRIPT, STYLE = "zoo-trace.js", "zoo-trace.css"
CANDIDATES = (
    120  # tokens of the vocabulary that are told one by one; the others stand in groups of like logits
)


def traced(named: list[str], options: dict[str, str], docname: str, language: str) -> str:
    """The HTML of some parts of a run of a model; with `ask`, a place for the reader's prompt instead of a link to one.

    `named` are the model's name and perhaps "ask"; options are `prompt`, `parts`, `layers`, `max-tokens`, `temperature`, `seed`.
    """
    name, *more = named
    settings: dict[str, Any] = {
        key.replace("-", "_"): kind(options[key]) for key, kind in SETTINGS.items() if key in options
    }
    prompt, parts = options["prompt"], options["parts"].split()
    layers = [int(number) for number in options.get("layers", "").split()]
    key = json.dumps([name, prompt, parts, layers, settings])
    made = cached_result(lambda: embeddings(name, prompt, parts, layers, settings), "trace", key)
    top = "../" * docname.count("/")
    shown: str = made[language]
    return shown + (live_form if more == ["ask"] else live_link)(name, prompt, settings, top, language)


def live_form(name: str, prompt: str, settings: dict[str, Any], top: str, language: str) -> str:
    """A place for a prompt, which the live page then runs."""
    text = words(language)
    return (
        f'<form class="zoo-ask" action="{top}{FOLDER}/index.html">'
        f'<input type="hidden" name="model" value="{escape(name)}">'
        f'<label>{text["ask"]} <input name="prompt" value="{escape(prompt)}" autocomplete="off"></label> '
        f"<button>{text['run']}</button></form>"
    )


def live_link(name: str, prompt: str, settings: dict[str, Any], top: str, language: str) -> str:
    """A link to the page that runs the model with this prompt and these settings; "" for a model that does not run there."""
    if name not in MODELS:
        return ""
    given: dict[str, Any] = {"prompt": prompt}
    if temperature := settings.get("temperature"):
        given["temperature"] = f"{temperature:g}"
    if more := settings.get("max_tokens", 1) - 1:  # the page shows one token more than it has written
        given["steps"] = more
    address = f"{top}{FOLDER}/index.html{live_hash(name, **given)}"
    return f'<p class="zoo-place"><a href="{escape(address)}">{words(language)["try_live"]}</a></p>'


def embeddings(
    name: str, prompt: str, parts: list[str], layers: list[int], settings: dict[str, Any]
) -> dict[str, str]:
    """The HTML of a trace by language."""
    from zoo.describe.language import LANGUAGES
    from zoo.inspect.trace_view.build_view import build_view
    from zoo.inspect.trace_view.page import embedded
    from zoo.inspect.tracing.traced_run import trace

    view = build_view(trace(loaded(name), prompt, **settings), CANDIDATES)
    return {language: embedded(view, parts, language, layers) for language in LANGUAGES}


@cache
def loaded(name: str) -> Any:
    """A model, loaded once."""
    from zoo.loading import load

    return load(name)


def add_files(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Give a page that has a trace, or computes one, its script and style sheet."""
    if app.builder.format == "html" and 'class="zoo-trace' in context.get("body", ""):
        app.add_js_file(SCRIPT)
        app.add_css_file(STYLE)


def write(app: Any, error: Exception | None) -> None:
    """Write script and style sheet beside the site's own."""
    from zoo.inspect.trace_view.page import script, style

    if error is None and app.builder.format == "html":
        folder = Path(app.outdir, "_static")
        (folder / SCRIPT).write_text(script(app.config.zoo_language), encoding="utf-8")
        (folder / STYLE).write_text(style(), encoding="utf-8")


def setup(app: Any) -> None:
    """Add what its pages need."""
    app.connect("html-page-context", add_files)
    app.connect("build-finished", write)
