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

from building.build_cache import cached_result
from building.directive import ZooDirective, html
from building.live import MODELS, PROMPTS, examples, write_json

ASSETS = Path(__file__).parent / "live_assets"
RECORDED = ("choice", "layers", "lens")  # the parts of the recorded run
FOLDER = "live"  # of the page, and of its files within _static
# The sentences that explain a part of a model, as a trace's page has them.
TEXTS = {"layers": ("layers", "attention", "feedforward", "experts"), "lens": ("lens",)}
TALK = "talk.json"  # the part in which a model speaks: its markup and its texts
# The settings of a conversation: name, bounds, step, first value.
SETTINGS = (
    ("temperature", 0, 2, 0.05, 0),
    ("top_k", 0, 49152, 1, 0),
    ("top_p", 0.01, 1, 0.01, 1),
    ("seed", 0, 2**32 - 1, 1, 0),
    ("most", 1, 512, 1, 128),
)


@cache
def words(language: str, part: str = "words") -> dict[str, Any]:
    """The texts of the page in a language, by name; `part` "talk" has those of the model that speaks."""
    found: dict[str, Any] = json.loads((ASSETS / f"{part}.{language}.json").read_text(encoding="utf-8"))
    return found


def live_hash(name: str, **settings: Any) -> str:
    """The part of the page's address that sets it up: the model, and what differs from the page's own settings."""
    return "#" + urlencode({"model": name, **settings}, quote_via=quote)


class Live(ZooDirective):
    """The place where a model runs."""

    def made(self) -> list[nodes.Node]:
        from zoo.describe.pages.template import as_data, environment
        from zoo.inspect.trace_view.page import table

        text, trace = words(self.language), table(self.language)
        depth = self.env.docname.count("/")
        top, english = "../" * depth, "../" * (depth + (self.language == "zh"))
        filled = (
            environment(ASSETS)
            .get_template("live.html")
            .render(
                language=self.language,
                words=text,
                trace=trace,
                texts=TEXTS,
                tour=f"{top}tour/index.html",
                script=f"{english}_static/{FOLDER}/page.js",
                weights=f"{english}_static/{FOLDER}/models/",
                models=[
                    {"name": name, "title": title, "about": about}
                    for name, (title, about) in text["models"].items()
                ],
                talk=words(self.language, "talk"),
                talk_body=f"{top}_static/{FOLDER}/{TALK}",
                talk_script=f"{english}_static/{FOLDER}/talk_page.js",
                data=as_data({**text, "prompts": prompts(self.language), "sizes": sizes()}),
                recorded=as_data(cached_result(lambda: recorded(self.language), "recorded", self.language)),
            )
        )
        return [html(filled)]


def prompts(language: str) -> dict[str, dict[str, list[str]]]:
    """The example prompts of each model by topic: those of its task."""
    from zoo.host.registry import default_registry

    found = default_registry().architectures
    return {name: PROMPTS[found[name].task][language] for name in MODELS}


def sizes() -> dict[str, float]:
    """The size of each model's weights in half precision, in MB."""
    from zoo.describe import describe
    from zoo.host.registry import default_registry

    registry = default_registry()
    sheets = {name: describe(f"{name}:pocket", registry).sheet(registry) for name in MODELS}
    return {name: round(2 * sheet.value("parameters.total") / 1e6, 1) for name, sheet in sheets.items()}


def recorded(language: str) -> dict[str, Any]:
    """The run that the page shows before any of the reader's: the first model's, of its first example.

    `data` is what a trace's script draws, `why` the sentences on its parts, `shapes` the numbers in the way of the text.
    """
    from building.trace import CANDIDATES, loaded
    from zoo.describe.language import in_language
    from zoo.inspect.trace_view.build_view import build_view
    from zoo.inspect.trace_view.page import data_of
    from zoo.inspect.tracing.traced_run import trace

    model = loaded(next(iter(words(language)["models"])))
    recipe = model.recipe
    view = build_view(trace(model, examples(model.architecture.task, language)[0], max_tokens=1), CANDIDATES)
    return {
        "data": data_of(view, RECORDED, language, whole=False),
        "why": {part: in_language(text, language) for part, text in view.words.items()},
        "shapes": {
            "width": recipe.embedding.dim,
            "heads": recipe.layers[0].mixer.heads,
            "vocabulary": recipe.embedding.vocab,
        },
    }


def talk(language: str) -> dict[str, Any]:
    """The part in which a model speaks, which a browser fetches when its reader opens it: `body` and `words`."""
    from zoo.describe.pages.template import environment
    from zoo.inspect.trace_view.page import table

    own = words(language, "talk")
    template = environment(ASSETS).get_template("talk_body.html")
    body = template.render(talk=own, words=words(language), trace=table(language), settings=SETTINGS)
    return {"body": body, "words": own}


def write(app: Any, error: Exception | None) -> None:
    """Write that part as a file of its own."""
    if error is None and app.builder.format == "html":
        folder = Path(app.outdir, "_static", FOLDER)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / TALK, talk(app.config.zoo_language))


def add_files(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Give the page its style sheet, after those of traces, which it changes."""
    if app.builder.format == "html" and 'class="zoo-live"' in context.get("body", ""):
        app.add_css_file(f"{FOLDER}/page.css")


def setup(app: Any) -> None:
    """Add the directive, and what its page needs."""
    app.add_directive("live", Live)
    app.connect("build-finished", write)
    app.connect("html-page-context", add_files, priority=600)  # after the styles of traces, which it changes
