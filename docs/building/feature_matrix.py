"""`{matrix}`: architectures against features, computed from the recipe of each one's full-size preset and its record."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

from docutils import nodes

from building.architecture_words import WORDS, titled
from building.directive import ZooDirective, html
from building.family import Member, members
from building.task_filter import task_filter
from zoo.checkpoint.quantization_settings import AFFINE_BITS, FLOAT_MODES
from zoo.describe import Sheet
from zoo.describe.facts.fact import ABSENT, parameter_count
from zoo.describe.facts.memory import cache_sizes, weights_of
from zoo.describe.facts.structure import position_text, scaling_text
from zoo.describe.language import in_language
from zoo.frozen import Frozen, frozen
from zoo.host.registry import default_registry

READ = ("mixer", "head_norm", "window", "feedforward", "norm", "placement", "causality")
# The columns that have a fact's own label; the words of this site have those of the others.
LABELS = {
    "mixer": "mixer",
    "head_norm": "query and key norm",
    "window": "window",
    "positions": "positions",
    "norm": "norm",
    "placement": "norm placement",
    "feedforward": "feed-forward",
    "experts": "experts",
    "tied": "head tied to embedding",
    "causality": "a token sees",
    "parameters total": "parameters",
}


@frozen()
class Entry(Frozen):
    """One cell: its text, and what a column of numbers is sorted by."""

    text: str
    number: float | None = None


def features(one: Member, language: str) -> dict[str, Entry]:
    """The cells of one architecture, by the names of their columns."""
    words, architecture, recipe = WORDS[language], one.found.architecture, one.found.recipe
    sheet = one.found.sheet(default_registry())

    def said(text: str) -> str:
        return in_language(text, language)

    def joined(texts: Iterator[str]) -> str:
        return " / ".join(dict.fromkeys(map(said, texts))) or ABSENT

    found = {name: Entry(joined(_texts(sheet, name))) for name in READ}
    total = sheet.value("parameters.total")
    found["parameters total"] = Entry(parameter_count(total), total)
    found["positions"] = Entry(joined(_positions(recipe)))
    found["experts"] = _experts(sheet, words)
    found["tied"] = Entry(
        ABSENT if sheet.get("tied") is None else words["yes" if sheet.value("tied") else "no"]
    )
    kinds = dict.fromkeys(one.kind for one in cache_sizes(recipe))
    kept = " / ".join(words.get(f"cache {kind}", kind) for kind in kinds)
    found["cache"] = Entry(kept or words["cache none"])
    found["formats"] = Entry(_formats(one, words))
    small = architecture.preset("pocket")
    found["small"] = Entry(words["yes" if small is not None and small.embedded else "no"])
    found["gguf short"] = Entry(architecture.gguf.architecture if architecture.gguf else ABSENT)
    found["layouts"] = Entry(words["layout own" if architecture.mlx_weights else "layout same"])
    when = one.published
    found["published"] = Entry(when or ABSENT, float(when.replace("-", ".")) if when else None)
    found["task"] = Entry(words[f"task {one.task}"])
    found["base"] = Entry(one.base or ABSENT)
    return found


COLUMNS = (
    *(
        "published",
        "task",
        "base",
        "parameters total",
        "mixer",
        "head_norm",
        "window",
        "positions",
        "norm",
        "placement",
    ),
    *("feedforward", "experts", "tied", "causality", "cache", "formats", "small", "gguf short", "layouts"),
)


# The columns that are shown at first where a script can hide the others.
SHOWN = ("published", "parameters total", "mixer", "positions", "norm", "placement", "feedforward", "cache")


def _texts(sheet: Sheet, key: str) -> Iterator[str]:
    """The values of a fact, of each stack that has it."""
    return (fact.text for fact in sheet if fact.key == key and fact.value is not None)


def _positions(recipe: Any) -> Iterator[str]:
    """The kinds of positions, and of their scaling, without numbers."""
    for _, spec in recipe.walk():
        if spec.kind == "position":
            yield position_text(spec).partition(",")[0]
        elif spec.kind == "rope-scaling":
            yield scaling_text(spec).partition(" ×")[0]


def _experts(sheet: Sheet, words: dict[str, str]) -> Entry:
    """How many experts there are and a token uses, in the layers that have them."""

    def number(key: str) -> int | None:
        for fact in sheet:
            if fact.key == key:
                values = fact.value if isinstance(fact.value, tuple) else (fact.value,)
                return next((int(value) for value in values if value is not None), None)
        return None

    count = number("experts")
    if count is None:
        return Entry(ABSENT, 0)
    said = "experts shared" if number("shared_width") else "experts value"
    return Entry(words[said].format(used=number("experts_used"), count=count), count)


def _formats(one: Member, words: dict[str, str]) -> str:
    """The formats in which the model's weights take less room than whole: its rows must divide into their groups."""
    weights = weights_of(one.found.recipe, one.found.architecture.quantizes)
    if weights is None:
        return ABSENT
    whole = weights.bytes("bfloat16")
    bits = [str(bits) for bits in AFFINE_BITS[1:] if weights.bytes(str(bits)) < whole]
    modes = [mode for mode in FLOAT_MODES if weights.bytes(mode) < whole]
    several = [words["bits"].format(bits=words["list"].join(bits))] if bits else []
    return words["list"].join([*several, *modes]) or ABSENT


def matrix(among: dict[str, Member], language: str, address: str) -> str:
    """The table, with buttons that sort it, choices that filter it, and a choice of columns for a script, as HTML."""
    words = WORDS[language]
    titles = {
        column: titled(in_language(LABELS[column], language)) if column in LABELS else words[column]
        for column in COLUMNS
    }
    top = "".join(
        f'<th scope="col"><button type="button" title="{escape(words["sort"].format(column=title))}">{title}</button></th>'
        for title in (words["architecture"], *titles.values())
    )
    rows = []
    for name, one in among.items():
        found = features(one, language)
        cells = "".join(_cell(found[column]) for column in COLUMNS)
        link = f'<a href="{address}{name}.html">{name}</a>'
        rows.append(f'<tr data-task="{one.task}"><th scope="row">{link}</th>{cells}</tr>')
    return (
        f'<div class="zoo-filtered">{task_filter(among, language, "matrix")}{_chooser(titles, words)}'
        f'<p class="zoo-hint">{words["scrolls"]}</p>'
        f'<div class="zoo-scroll zoo-matrix" tabindex="0" role="group" aria-label="{words["matrix"]}">'
        f"<table><thead><tr>{top}</tr></thead><tbody>{''.join(rows)}</tbody></table></div></div>"
    )


def _chooser(titles: dict[str, str], words: dict[str, str]) -> str:
    """A box for each column, in the order of the table; hidden until the script has read it."""
    boxes = "".join(
        f'<label><input type="checkbox" name="{column.replace(" ", "-")}"{" checked" if column in SHOWN else ""}> '
        f"{title}</label>"
        for column, title in titles.items()
    )
    said = escape(words["columns"].format(shown="{shown}", all=len(titles)))
    return (
        f'<details class="zoo-columns" hidden data-said="{said}"><summary></summary><div class="zoo-choice">{boxes}'
        f'<button type="button">{words["first columns"].format(count=len(SHOWN))}</button></div></details>'
    )


def _cell(entry: Entry) -> str:
    order = "" if entry.number is None else f' data-number="{entry.number:.12g}"'
    return f"<td{order}>{escape(entry.text)}</td>"


class Matrix(ZooDirective):
    """The table of all architectures."""

    def made(self) -> list[nodes.Node]:
        return [html(matrix(members(), self.language, "architectures/"))]


def add_script(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Give the page of the table its script."""
    if app.builder.format == "html" and "zoo-matrix" in context.get("body", ""):
        app.add_js_file("matrix.js", loading_method="defer")


def setup(app: Any) -> None:
    """Add the directive, and what its page needs."""
    app.add_directive("matrix", Matrix)
    app.connect("html-page-context", add_script)
