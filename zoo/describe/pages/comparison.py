"""Makes the page that compares models, and its script, styles and element for other pages. Imports no mlx.

The page's script draws everything from one card for each model (`zoo.describe.pages.model_card`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from zoo.checkpoint.quantization_settings import AFFINE_BITS, FLOAT_MODES, ROUTER_BITS, ROUTER_GROUP
from zoo.describe.described import Described, pocket_facts
from zoo.describe.differences import differences
from zoo.describe.facts.fact import ABSENT, Fact
from zoo.describe.facts.fact import compare as compared
from zoo.describe.facts.memory import FLOATS, POLICIES, STATE_BYTES, format_of
from zoo.describe.facts.sheet import CONTEXT, WEIGHTS, common_context
from zoo.describe.language import in_language
from zoo.describe.pages.model_card import (
    LEFT_OUT,
    card,
    code_table,
    shared_words,
    with_words,
    words_between,
)
from zoo.describe.pages.template import as_data, asset, filled, theme
from zoo.host.registry import Registry

LONGEST = 2**20  # tokens that the slider reaches where a model has no bound
FORMATS = (*FLOATS, *map(str, reversed(AFFINE_BITS[1:])), *FLOAT_MODES)
SCRIPTS = tuple(
    f"compare_{name}.js" for name in ("base", "facts", "marks", "view", "draw", "swipe", "parts", "picker")
)

UNSTRUCTURED = ("licence",)  # facts whose text says nothing of how a model is built

# The facts that a box is about, by its role; "norm" is also that of the layers' boxes.
ABOUT = {
    "input": ("context",),
    "embedding": ("vocabulary", "width", "positions", "tied"),
    "attention": (
        *("mixer", "heads", "kv_heads", "head_width", "window", "latent", "state", "positions", "causality"),
        *("cache.token", "cache.context", "cache.state"),
    ),
    "cross": ("heads", "kv_heads", "head_width"),
    "feedforward": ("feedforward", "hidden", "experts", "experts_used", "expert_width", "shared_width"),
    "norm": ("norm", "placement"),
    "frame": ("layers", "sums", "residual_scale"),
    "head": ("tied", "vocabulary"),
}


def compare_page(
    models: Sequence[Described],
    registry: Registry,
    *,
    context: int | None = None,
    quantize: str | None = None,
    measured: Sequence[Sequence[Fact]] = (),
) -> str:
    """One HTML file that compares models, or shows one; it needs no other file and no network.

    `context` and `quantize` are the settings that it begins with, `measured` the figures of each on this machine.
    ZooError for settings that cannot be.
    """
    titles = [one.origin for one in models]
    words = words_between(dict(zip(titles, models, strict=True)))["en"]
    shared = shared_words(words)
    given = [f"zooCompare.shared = {as_data(shared)};"]
    for one, figures in zip(models, measured or [()] * len(models), strict=True):
        made = card(one, registry, pocket=pocket_facts(one.architecture), measured=figures)
        given.append(f"zooCompare.card({as_data(with_words(made, words[one.origin], shared))});")
    given.append(f"zooCompare.code = {as_data(code_table(models, registry))};")
    return filled(
        "compare.html",
        style=theme() + asset("page.css") + app_style(),
        script=asset("page.js") + "\n" + app_script(before=given),
        title=" and ".join(titles),
        titles=titles,
        app=app_element(models, registry, context=context, quantize=quantize),
    )


def app_style() -> str:
    """The style sheet of the comparison and its diagrams; the colours are custom properties, which the page sets."""
    return asset("compare.css") + asset("compare_diagram.css")


def app_script(language: str = "en", *, record: str = "", before: Sequence[str] = ()) -> str:
    """The script of the comparison; it starts in every element that `app_element` made.

    `record` says how the pockets were measured, `before` are statements that give it cards and code.
    """
    shared = f"zooCompare.common = {as_data(common(language, record))};"
    return "\n".join((*map(asset, SCRIPTS), shared, *before, asset("compare.js")))


def common(language: str, record: str = "") -> dict[str, Any]:
    """The data that all cards share: words, formats, sizes, and the facts of each kind of box."""
    words, formats = _words(language), {}
    for name in FORMATS:
        label = words["bits"].format(bits=name) if name.isdecimal() else name
        one = format_of(name)
        formats[name] = {"bits": one.bits, "group": one.group, "scale_bytes": one.scale_bytes, "label": label}
    return {
        "words": words,
        "formats": formats,
        "router": {"bits": ROUTER_BITS, "group": ROUTER_GROUP, "scale_bytes": 4},
        "policies": POLICIES,
        "state_bytes": STATE_BYTES,
        "context": CONTEXT,
        "longest": LONGEST,
        "absent": ABSENT,
        "about": ABOUT,
        "unstructured": UNSTRUCTURED,
        "record": record,
    }


def choices(models: Iterable[Described], language: str = "en") -> list[dict[str, str]]:
    """The models that a person may choose among: names and summaries."""
    return [{"name": one.origin, "about": in_language(one.architecture.summary, language)} for one in models]


def about_record(record: Mapping[str, Any], language: str = "en") -> str:
    """How the small checkpoints were measured: the machine, the day, and what else it did; "" for no record."""
    if not record:
        return ""
    return _words(language)["record"].format(
        **record["versions"], **{key: record[key] for key in ("date", "load", "tokens", "new")}
    )


def _words(language: str) -> Any:
    return json.loads(asset(f"compare.{language}.json"))


def app_element(
    models: Sequence[Described],
    registry: Registry,
    *,
    language: str = "en",
    context: int | None = None,
    quantize: str | None = None,
    more: Mapping[str, Any] | None = None,
) -> str:
    """The element in which the comparison of some models runs; without scripts it has their facts and differences as text.

    `more` is what the script is told besides: `folder`, where it finds the cards that are not in the page, `models`, those
    that a person may choose among, `files`, where pages of code are, `level`, that of its headings.
    """
    say = partial(in_language, language=language)
    tokens = context or common_context([one.recipe for one in models])
    sheets = [one.sheet(registry, tokens, quantize) for one in models]
    rows = [
        {"label": say(row.label), "texts": list(map(say, row.texts)), "differs": row.differs}
        for row in compared(sheets)
        if not (row.detail or row.empty or row.name.startswith(LEFT_OUT))
    ]
    titles = [one.origin for one in models]
    words = [
        {
            "title": _words(language)["compared"].format(name=title, first=titles[0]),
            "sentences": [say(text) for text in differences(models[0].recipe, one.recipe)],
        }
        for title, one in zip(titles[1:], models[1:], strict=True)
    ]
    data = {"names": titles, "context": context, "weights": quantize or WEIGHTS, "level": 2, **(more or {})}
    return filled("compare_app.html", data=as_data(data), titles=titles, rows=rows, words=words)
