"""The colours of diagrams, figures and traces in furo's three themes: light, dark, and what the browser asks for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import furo

from zoo.describe.diagram import geometry
from zoo.describe.diagram.svg import DARK, LIGHT, properties, rules, style

# The size and the place of a diagram's texts by their class: the page's sheet has these, and not each text.
USUAL = {
    "title": (geometry.TITLE, ' text-anchor="middle"'),
    "part": (geometry.CELL, ' text-anchor="middle"'),
    "note": (geometry.NOTE, ""),
}
USUAL_TEXTS = [
    re.compile(rf'(<text class="{kind}" x="[^"]*" y="[^"]*") font-size="{size}"{anchor}(?! text-anchor)')
    for kind, (size, anchor) in USUAL.items()
]
# What an SVG within HTML need not say.
NEEDLESS = re.compile(r' xmlns="http://www.w3.org/2000/svg"| rx="0"(?= style=)')
# What is kept to the letter, and the lines between two elements.
KEPT = re.compile(r"(<(?:pre|script|style|textarea)\b.*?</(?:pre|script|style|textarea)>)", re.DOTALL)
ICON = re.compile(r'<svg(?: class="([\w-]+)")?><use href="#(svg-[\w-]+)"></use></svg>')
TO_TOP = re.compile(r'<a href="#" class="back-to-top.*?<span>(.*?)</span>.*?</a>', re.DOTALL)
SYMBOL = re.compile(r'<symbol id="([\w-]+)".*?(<svg.*?</svg>)\s*</symbol>', re.DOTALL)
UNUSED = ("svg-pencil", "svg-eye")  # of links to a page's source
XMLNS = "http://www.w3.org/2000/svg"
SAFE = ' =:/"<>().,-'  # characters that a URL within apostrophes may hold
BETWEEN = re.compile(r">\s*\n\s*<")


def colours() -> str:
    """The style sheet: custom properties on `body`, and on the diagrams, whose own sheet sets them, too."""

    def rule(selector: str, values: dict[str, str]) -> str:
        return f"{selector},{selector} .zoo-diagram{{{properties(values)}}}"

    return "\n".join(
        (
            rule("body", LIGHT),
            f"@media (prefers-color-scheme:dark){{{rule('body:not([data-theme=light])', DARK)}}}",
            rule("body[data-theme=dark]", DARK),
            rule("body[data-theme=light]", LIGHT),
            rules(),
            *(
                f":where(.zoo-diagram text.{kind}:not([font-size])){{font-size:{size}px;{anchor and 'text-anchor:middle'}}}"
                for kind, (size, anchor) in USUAL.items()
            ),
        )
    )


def icons() -> str:
    """The rules that draw furo's icons where a page uses them: each is a mask in the colour of the text."""
    sheet = Path(furo.__file__).parent / "theme" / "furo" / "partials" / "icons.html"
    rules = []
    for name, icon in SYMBOL.findall(sheet.read_text(encoding="utf-8")):
        if name in UNUSED:
            continue
        spaced = " ".join(icon.split())
        named = spaced if "xmlns=" in spaced else spaced.replace("<svg", f'<svg xmlns="{XMLNS}"', 1)
        mask = f"url('data:image/svg+xml,{quote(named, safe=SAFE)}') center/contain no-repeat"
        rules.append(f".{name}{{background:currentColor;mask:{mask}}}")
    return "\n".join(rules)


def write(app: Any, error: Exception | None) -> None:
    """Write it beside the other style sheets."""
    if error is None and app.builder.format == "html":
        sheet = f"{colours()}\n{icons()}\n"
        Path(app.outdir, "_static", "zoo-colours.css").write_text(sheet, encoding="utf-8")


def write_smaller(app: Any, error: Exception | None) -> None:
    """The theme's colours of code without its comments and spaces, its scripts without maps, pages without indentation."""
    if error is not None or app.builder.format != "html":
        return
    path = Path(app.outdir, "_static", "pygments.css")
    plain = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    path.write_text(re.sub(r"\s*([{};:,])\s*", r"\1", plain).strip(), encoding="utf-8")
    for path in Path(app.outdir, "_static").rglob("*.map"):
        path.unlink()
    for path in Path(app.outdir).rglob("*.html"):
        if app.config.zoo_language == "en" and path.relative_to(app.outdir).parts[0] == "zh":
            continue  # another build's
        parts = KEPT.split(path.read_text(encoding="utf-8"))
        parts[::2] = (ICON.sub(_icon, BETWEEN.sub(">\n<", part)) for part in parts[::2])
        path.write_text("".join(parts), encoding="utf-8")


def _icon(use: re.Match[str]) -> str:
    """An icon that a rule of `icons` draws in the place of one that is drawn by a part of the page."""
    return f'<svg class="{" ".join(filter(None, use.groups()))}"></svg>'


def add_landmark(html: str) -> str:
    """Furo's body of a page, its link to the top in a landmark, as all else on the page is."""
    return TO_TOP.sub(r'<nav aria-label="\1">\g<0></nav>', html)


def prepare_page(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Give the template `add_landmark`. Take out of diagrams what the page's own sheet says: their sheets, the sizes of texts."""
    context["zoo_landmark"] = add_landmark
    if "body" in context:
        body = context["body"].replace(f"<style>{style()}</style>", "")
        for usual in USUAL_TEXTS:
            body = usual.sub(r"\1", body)
        body = NEEDLESS.sub("", body)
        context["body"] = body


def setup(app: Any) -> None:
    """Add the style sheets, and the script for what is wider than its place."""
    app.add_css_file("zoo-colours.css")
    app.add_css_file("zoo.css")
    app.add_css_file("home.css")
    app.add_css_file("wide.css")
    app.add_js_file("zoo.js")
    app.connect("html-page-context", prepare_page)
    app.connect("build-finished", write)
    app.connect("build-finished", write_smaller, priority=900)  # after the theme has written it
