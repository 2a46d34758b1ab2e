"""`{trace}`: a run of an embedded checkpoint as an interactive picture, computed when the docs are built."""

from __future__ import annotations

import json
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives

from building.build_cache import cached_result
from building.directive import ZooDirective, html
from building.live import MODELS
from building.live_page import FOLDER, live_hash, words

SCRIPT, STYLE = "zoo-trace.js", "zoo-trace.css"
CANDIDATES = (
    120  # tokens of the vocabulary that are told one by one; the others stand in groups of like logits
)


class TraceDirective(ZooDirective):
    """Some parts of the trace of `NAME`: one prompt, at most a few tokens written."""

    required_arguments = 1
    option_spec = {  # noqa: RUF012
        "prompt": directives.unchanged_required,
        "parts": directives.unchanged_required,
        "layers": directives.unchanged_required,
        "max-tokens": directives.positive_int,
        "temperature": float,
        "seed": directives.nonnegative_int,
        "ask": directives.flag,  # a place for the reader's own prompt instead of the link to it
    }

    def made(self) -> list[nodes.Node]:
        if "prompt" not in self.options or "parts" not in self.options:
            raise ValueError("needs :prompt: and :parts:")
        name, prompt, parts = self.arguments[0], self.options["prompt"], self.options["parts"].split()
        layers = [int(number) for number in self.options.get("layers", "").split()]
        settings = {
            key.replace("-", "_"): self.options[key]
            for key in ("max-tokens", "temperature", "seed")
            if key in self.options
        }
        key = json.dumps([name, prompt, parts, layers, settings])
        made = cached_result(lambda: embeddings(name, prompt, parts, layers, settings), "trace", key)
        below = self.live_form(name, prompt) if "ask" in self.options else self.live_link(name, prompt)
        return [html(made[self.language] + below)]

    def live_form(self, name: str, prompt: str) -> str:
        """A place for a prompt, which the live page then runs."""
        text, top = words(self.language), "../" * self.env.docname.count("/")
        return (
            f'<form class="zoo-ask" action="{top}{FOLDER}/index.html">'
            f'<input type="hidden" name="model" value="{escape(name)}">'
            f'<label>{text["ask"]} <input name="prompt" value="{escape(prompt)}" autocomplete="off"></label> '
            f"<button>{text['run']}</button></form>"
        )

    def live_link(self, name: str, prompt: str) -> str:
        """A link to the page that runs the model with this prompt and these settings; "" for a model that does not run there."""
        if name not in MODELS:
            return ""
        settings: dict[str, Any] = {"prompt": prompt}
        if temperature := self.options.get("temperature"):
            settings["temperature"] = f"{temperature:g}"
        if more := self.options.get("max-tokens", 1) - 1:  # the page shows one token more than it has written
            settings["steps"] = more
        top = "../" * self.env.docname.count("/")
        address = f"{top}{FOLDER}/index.html{live_hash(name, **settings)}"
        return f'<p class="zoo-place"><a href="{escape(address)}">{words(self.language)["try_live"]}</a></p>'


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
    """Add the directive, and what its pages need."""
    app.add_directive("trace", TraceDirective)
    app.connect("html-page-context", add_files)
    app.connect("build-finished", write)
