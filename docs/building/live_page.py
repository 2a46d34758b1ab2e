"""`{live}`: the page in which a reader runs a model; its markup and texts. The script is docs/_static/live/page.js.

Nothing of a model is in the page: weights and engine are fetched when the reader asks for a run.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from docutils import nodes
from jinja2 import Environment, StrictUndefined

from building.build_cache import cached_result
from building.directive import ZooDirective, html

ASSETS = Path(__file__).parent / "live_assets"
FOLDER = "live"  # of the page, and of its files within _static
EXPLAINED = "explanations.json"
# The sentences that explain a part of a model, as a trace's page has them.
TEXTS = {"layers": ("layers", "attention", "feedforward", "experts"), "lens": ("lens",)}


@cache
def words(language: str) -> dict[str, Any]:
    """The texts of the page in a language, by name."""
    found: dict[str, Any] = json.loads((ASSETS / f"words.{language}.json").read_text(encoding="utf-8"))
    return found


def models() -> tuple[str, ...]:
    """The names of the models that run in the page."""
    return tuple(words("en")["models"])


def live_hash(name: str, **settings: Any) -> str:
    """The part of the page's address that sets it up: the model, and what differs from the page's own settings."""
    return "#" + urlencode({"model": name, **settings}, quote_via=quote)


class Live(ZooDirective):
    """The place where a model runs."""

    def made(self) -> list[nodes.Node]:
        from zoo.describe.pages.template import as_data
        from zoo.inspect.trace_view.page import table

        text, trace = words(self.language), table(self.language)
        depth = self.env.docname.count("/")
        top, english = "../" * depth, "../" * (depth + (self.language == "zh"))
        environment = Environment(
            autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        template = environment.from_string((ASSETS / "live.html").read_text(encoding="utf-8"))
        filled = template.render(
            language=self.language,
            words=text,
            trace=trace,
            texts=TEXTS,
            recorded=f"{top}tour/index.html",
            addresses={
                "models": f"{english}_static/{FOLDER}/models/",
                "trace": f"{top}_static/zoo-trace.js",
                "explained": f"{top}_static/{FOLDER}/{EXPLAINED}",
            },
            models=[
                {"name": name, "title": title, "about": about}
                for name, (title, about) in text["models"].items()
            ],
            data=as_data({**text, "prompts": prompts(self.language), "size": size()}),
        )
        return [html(filled)]


def prompts(language: str) -> dict[str, list[str]]:
    """The example prompts of each model."""
    found: dict[str, dict[str, list[str]]] = json.loads(
        (ASSETS / "prompts.json").read_text(encoding="utf-8")
    )
    common = found["models"]
    return {name: common.get(name, common[""])[language] for name in models()}


def explained(language: str) -> dict[str, Any]:
    """What a trace's page explains of each model, and the summaries of values, in a language."""
    from zoo.describe.language import in_language
    from zoo.inspect.trace_view.explanations import explanations
    from zoo.loading import load

    return {
        name: {part: in_language(text, language) for part, text in explanations(load(name)).items()}
        for name in models()
    }


def add_files(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Give the page its script and its style sheets."""
    if app.builder.format == "html" and 'class="zoo-live"' in context.get("body", ""):
        app.add_css_file("zoo-trace.css")
        app.add_css_file(f"{FOLDER}/page.css")
        app.add_js_file(f"{FOLDER}/page.js", type="module")


def write(app: Any, error: Exception | None) -> None:
    """Write the explanations beside the scripts."""
    if error is None and app.builder.format == "html":
        language = app.config.zoo_language
        texts = cached_result(lambda: explained(language), "live", language)
        path = Path(app.outdir, "_static", FOLDER, EXPLAINED)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(texts, ensure_ascii=False), encoding="utf-8")


def setup(app: Any) -> None:
    """Add the directive, and what its page needs."""
    app.add_directive("live", Live)
    app.connect("html-page-context", add_files)
    app.connect("build-finished", write)
