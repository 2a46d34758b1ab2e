"""Pages that read as files, as the site shows them: outputs in boxes, and something to explore in the place of pictures.

Markers are those of building/outputs.py and building/page_parts.py. A paragraph that begins with a picture is a figure, and the
rest of it its caption. `<!-- site: WORDS -->`, in one line or in several, are words and directives for the site alone, and what
stands between `<!-- file -->` and `<!-- end -->` is for the file alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from pathlib import PurePosixPath
from typing import Any

from docutils import nodes
from sphinx.errors import ExtensionError

from building.build_cache import ROOT
from building.code_of import found_by_name, place_of
from building.code_pages import address_of
from building.command import command
from building.compare import comparison
from building.diagram import side_by_side
from building.directive import boxed, html, literal
from building.language_switch import SAID
from building.page_parts import PARTS, SITE, words_of
from building.picture import drawer, drawing
from building.project_urls import repository_url
from building.shapes import strip_of
from building.shell import Shell
from building.trace import traced

CLONE = {"en": "A copy of the repository: ", "zh": "取得代码："}
MARKERS = ("run ", "py: ", "fact: ", "finding: ", "end -->", *(f"{kind}: " for kind in PARTS))
DROPPED = tuple(f"<!-- {marker}" for marker in MARKERS)
FILE = re.compile(r"^<!-- file -->\n.*?^<!-- end -->\n", re.DOTALL | re.MULTILINE)
PAGES = re.compile(r"^<!-- pages: ([^\n]*) -->\n.*?^<!-- end -->$", re.DOTALL | re.MULTILINE)
CONTENTS = "```{{toctree}}\n:maxdepth: 1\n\n{}\n```"
BEFORE_COLLECTORS = 400  # Sphinx copies the pictures that it finds at 500


class Reader:
    """A page that is read: its name, its language, and what its parts are made with."""

    def __init__(self, app: Any, doctree: nodes.document) -> None:
        self.env, self.doctree = app.env, doctree
        self.docname, self.language = str(app.env.docname), str(app.config.zoo_language)

    def read(self) -> None:
        """Put outputs in boxes, parts and figures in their places, and drop the markers."""
        for marker in self._markers():
            _, kind, *rest = marker.astext().split(maxsplit=2)
            if kind == "run" and rest[0].split()[0] in ("python", "console"):
                self._box(marker, rest[0].split()[0])
            elif (kind := kind.removesuffix(":")) in SHOWN:
                self._part(marker, kind, rest[0].strip().removesuffix("-->").strip())
        for marker in self._markers():
            if marker.astext().startswith(DROPPED):
                marker.parent.remove(marker)
        for image in list(self.doctree.findall(nodes.image)):
            if isinstance(image.parent, nodes.paragraph) and image.parent[0] is image:
                self._figure(image.parent, image)

    def _markers(self) -> list[nodes.raw]:
        """The comments of the page."""
        return [one for one in self.doctree.findall(nodes.raw) if one.astext().startswith("<!-- ")]

    def _box(self, marker: nodes.raw, kind: str) -> None:
        """Box the blocks of code that follow a marker; in a box of Python, all but code are outputs."""
        parent = marker.parent
        start = parent.index(marker) + 1
        inside = []
        while start < len(parent) and isinstance(parent[start], nodes.literal_block):
            inside.append(parent[start])
            parent.remove(parent[start])
        if not inside:
            return
        if kind == "python":
            inside = [
                boxed(one, classes=("zoo-output",)) if one["language"] == "text" else one for one in inside
            ]
        parent.insert(start, boxed(*inside, classes=(f"zoo-{kind}",)))

    def _part(self, marker: nodes.raw, kind: str, text: str) -> None:
        """Put what the site has for a part in the place of what the file has, up to the end marker."""
        parent = marker.parent
        start = parent.index(marker)
        end = start
        while not parent[end].astext().startswith("<!-- end -->"):
            end += 1
        inside = parent[start + 1 : end]
        try:
            parent[start : end + 1] = SHOWN[kind](self, text, inside)
        except Exception as error:
            where = f"{self.docname}: <!-- {kind}: {text} -->"
            raise ExtensionError(f"{where}: {type(error).__name__}: {error}") from error

    def _figure(self, paragraph: nodes.paragraph, image: nodes.image) -> None:
        """Show the drawing of a picture, with the caption that follows it."""
        stem = PurePosixPath(image["uri"]).stem
        module, _ = drawer(stem)
        if module is None:
            return
        self.env.note_dependency(module.__file__)
        label = escape(" ".join(image["alt"].split()))
        shown: list[nodes.Node] = [
            html(
                f'<figure class="zoo-figure"><div class="zoo-drawing" role="group" aria-label="{label}">'
                f"{drawing(stem, self.language)}</div>"
            )
        ]
        caption = [one for one in paragraph[1:] if not (isinstance(one, nodes.raw) and "<br" in one.astext())]
        if any(one.astext().strip() for one in caption):
            shown += [html("<figcaption>"), nodes.paragraph("", "", *caption), html("</figcaption>")]
        paragraph.parent[(place := paragraph.parent.index(paragraph)) : place + 1] = [
            *shown,
            html("</figure>"),
        ]

    def code(self, text: str, inside: list[nodes.Node]) -> list[nodes.Node]:
        """Code under a link to its page."""
        target = found_by_name(text)
        path, line = place_of(target)
        self.env.note_dependency(str(ROOT / path))
        link = address_of(target, self.docname, self.language)
        label = f"{SAID[self.language]['code']}: {path.as_posix()}:{line}"
        head = html(f'<p class="zoo-place"><a href="{link}">{escape(label)}</a></p>')
        block = [one for one in inside if isinstance(one, nodes.literal_block)]
        return [boxed(head, *block, classes=("zoo-code",))]

    def command(self, text: str, inside: list[nodes.Node]) -> list[nodes.Node]:
        """A command with its options."""
        return [command(text, self.language)]

    def checkout(self, text: str, inside: list[nodes.Node]) -> list[nodes.Node]:
        """How to copy the repository, where its address is known."""
        address = repository_url()
        if not address:
            return inside
        line = f"git clone {address}"
        return [nodes.paragraph("", "", nodes.Text(CLONE[self.language]), nodes.literal(line, line))]

    def console(self, text: str, inside: list[nodes.Node]) -> list[nodes.Node]:
        """A command of a page that has no file, and what it prints now."""
        printed = Shell().run(text, 0)["out"].rstrip()
        return [boxed(literal(f"$ {text}\n{printed}", "console"), classes=("zoo-console",))]

    def shapes(self, text: str, inside: list[nodes.Node]) -> list[nodes.Node]:
        """The strip, whose stages lead to their pages."""
        return [html(strip_of(*words_of(text), self.language).html(self.docname.rpartition("/")[2]))]

    def trace(self, text: str, inside: list[nodes.Node]) -> list[nodes.Node]:
        """The run, to explore."""
        return [html(traced(*words_of(text), self.docname, self.language))]

    def diagram(self, text: str, inside: list[nodes.Node]) -> list[nodes.Node]:
        """The diagrams, whose boxes lead to their code."""
        ident = f"diagram-{self.env.new_serialno('diagram')}"
        return [html(side_by_side(text.split(), self.docname, self.language, ident))]

    def compare(self, text: str, inside: list[nodes.Node]) -> list[nodes.Node]:
        """The comparison, to explore."""
        return [html(comparison(text.split(), self.docname, self.language))]


Shown = Callable[[Reader, str, list[nodes.Node]], list[nodes.Node]]
SHOWN: dict[str, Shown] = {
    "code": Reader.code,
    "command": Reader.command,
    "checkout": Reader.checkout,
    "console": Reader.console,
    "shapes": Reader.shapes,
    "trace": Reader.trace,
    "diagram": Reader.diagram,
    "compare": Reader.compare,
}


def for_the_site(text: str) -> str:
    """A page's text with what only the site has, and without what only the file has."""
    text = FILE.sub("", SITE.sub(r"\1", text))
    return PAGES.sub(lambda found: CONTENTS.format("\n".join(found[1].split())), text)


def read_source(app: Any, docname: str, source: list[str]) -> None:
    """Read the text so."""
    source[0] = for_the_site(source[0])


def unmarked(app: Any, doctree: nodes.document) -> None:
    """Read a page so."""
    Reader(app, doctree).read()


def setup(app: Any) -> None:
    """Read pages so."""
    app.connect("source-read", read_source)
    app.connect("doctree-read", unmarked, priority=BEFORE_COLLECTORS)
