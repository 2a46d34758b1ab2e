"""The code behind what is shown: a page for each file that a diagram or a page of the docs leads to.

The pages are those of the English build; Chinese ones lead there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from building.build_cache import ROOT
from building.code_of import place_of
from building.compare_cards import code_behind
from building.language_switch import SAID

# Files that get a page: what a box of a diagram may lead to, and what the tour shows.
SHOWN = (
    *("zoo/blocks", "zoo/recipe", "zoo/weights", "zoo/generation", "zoo/training", "zoo/cache"),
    *("zoo/assemble.py", "zoo/loading.py", "zoo/tokenizer", "plugins", "docs/formulas"),
)

# Names, punctuation, operators and spaces are in the colour of the text, and more than half of a page.
UNCOLOURED = re.compile(r'<span class="(?:n|p|o|w)">([^<]*)</span>')
PIECE = re.compile(r'<span class="pre">([^<]*)</span>')
STORY = "tour/"
CODE = re.compile(
    r'<div class="zoo-code docutils container">\s*<p class="zoo-place">(<a.*?</a>)</p>(.*?</pre>\s*</div>\s*</div>)\s*</div>',
    re.DOTALL,
)
DEFINED = re.compile(r'<span class="k">(?:def|class)</span> <span class="n[fc]">(\w+)</span>')
LINK = re.compile(r'href="[^"]*\bcode/([\w/.-]+)\.html(?:#line-(\d+))?"')
LINE = re.compile(r'<span id="line-(\d+)">(.*\n)</span>')


def files() -> Iterator[Path]:
    """The files that have a page, as paths from the root."""
    for name in SHOWN:
        path = ROOT / name
        for found in [path] if path.is_file() else sorted(path.rglob("*.py")):
            if found.read_text(encoding="utf-8").strip():
                yield found.relative_to(ROOT)


def address_of(target: Any, docname: str, language: str) -> str:
    """The link from a page to a class or function."""
    path, line = place_of(target)
    up = "../" * (docname.count("/") + (language == "zh"))
    return f"{up}code/{path.with_suffix('.html').as_posix()}#line-{line}"


def used(out: Path) -> dict[str, set[str]]:
    """The files, without their suffix, that the written pages or the cards of models lead to, and the lines of each."""
    found: dict[str, set[str]] = {}
    for one in code_behind().values():
        found.setdefault(one["file"].removesuffix(".py"), set()).add(str(one["line"]))
    for path in out.rglob("*.html"):
        if path.relative_to(out).parts[0] not in ("code", "zh"):
            for name, line in LINK.findall(path.read_text(encoding="utf-8")):
                found.setdefault(name, set()).add(line)
    return found


def pages(app: Any) -> Iterator[tuple[str, dict[str, Any], str]]:
    """The page of each file that another page leads to, highlighted, with anchors of its lines; the others are written by now."""
    if app.config.zoo_language != "en":
        return
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    wanted = used(Path(app.outdir))
    for path in files():
        name = path.with_suffix("").as_posix()
        if name not in wanted:
            continue
        text = (ROOT / path).read_text(encoding="utf-8")
        formatter = HtmlFormatter(linespans="line", wrapcode=True)
        body = LINE.sub(
            lambda line, lines=wanted[name]: line[0] if line[1] in lines else line[2],
            highlight(text, PythonLexer(), formatter),
        )
        lead = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
        about = {"title": path.as_posix(), "about": escape(lead), "body": body}
        yield f"code/{name}", about, "code.html"


def uncoloured(text: str) -> str:
    """Highlighted code without the marks of what is in the colour of the text."""
    return UNCOLOURED.sub(r"\1", text)


def plain_literals(text: str) -> str:
    """Code within sentences with one element: Sphinx gives each word one of its own, which is most of a reference."""
    return PIECE.sub(r"\1", text).replace('class="docutils literal notranslate"', 'class="literal"')


def fold(found: re.Match[str], language: str) -> str:
    """The code of a function or class in a box that a reader opens, under its name."""
    link, block = found.groups()
    name = DEFINED.search(block)
    said = f"{SAID[language]['code']}: <code>{name[1]}</code>" if name else re.sub("<.*?>", "", link)
    place = f'<p class="zoo-place">{link}</p>'
    return f'<details class="zoo-code"><summary>{said}</summary>{place}{block}</details>'


def fold_code(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Fold the code on pages that tell a story."""
    if "body" in context and page.startswith(STORY):
        context["body"] = CODE.sub(partial(fold, language=app.config.zoo_language), context["body"])


def make_smaller(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """The same for the code on any page."""
    if "body" in context:
        context["body"] = uncoloured(plain_literals(context["body"]))


def setup(app: Any) -> None:
    """Add the pages."""
    app.connect("html-page-context", make_smaller)
    app.connect("html-page-context", fold_code)
    app.connect("html-collect-pages", pages)
