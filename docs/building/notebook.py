"""A notebook of each page of the tour, made from the page's file: prose, formulas and pictures, and its code to run.

Code cells are the blocks of Python and the commands that the page shows, with what they printed; a trace that the site shows
becomes a call of `zoo.trace`, which a notebook shows, too. What only the site or the repository has is left out: strips of shapes,
hidden code that only the page's own sentences need, and links, where the address of the site is not known. Of a large picture there are the
words that describe it. The functions need no Sphinx.
"""

from __future__ import annotations

import ast
import base64
import json
import re
from pathlib import Path
from posixpath import join, normpath
from typing import Any

from building.build_cache import DOCS
from building.outputs import MARKED
from building.page_parts import words_of
from building.picture import FOLDER

FOLDERS = ("tour",)
WITHIN_PAGES = "notebooks"  # beside the pages of a language
MADE = {
    "en": "*This notebook is made from a page of the zoo's tour. Its cells run where the zoo is installed.*",
    "zh": "*这个笔记本由 zoo 导览的一页生成。安装了 zoo 的环境可以运行其中的代码。*",
}
LINK = {"en": "This page as a notebook", "zh": "本页的笔记本"}
SITE = re.compile(r"<!-- site(?::? |\n).*?-->\n?", re.DOTALL)
COMMENT = re.compile(r"<!-- .*?-->\n?", re.DOTALL)
IMAGE = re.compile(rf"!\[([^\n]*?)\]\((?:\.\./)*{FOLDER}/([\w.-]+\.svg)\)")
LARGEST = 10_000  # bytes of a picture that is put into a notebook, so that all notebooks together stay small
UNSEEN = re.compile(
    r'<rect [^>]*style="fill:transparent;stroke:transparent"></rect>\n?'
)  # what one can point at on the site
REFERENCE = re.compile(r"(?<!!)\[([^\]\[]+)\]\(([^)\s]+)\)")
FENCE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
ANSWER = re.compile(
    r"^<details[^\n]*>\n<summary>(.*?)</summary>\n(.*?)^</details>$", re.DOTALL | re.MULTILINE
)
CODE_LINES = re.compile(r"```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)


class Notebook:
    """The cells of a page, as they are read: the address of the site, if it is known, and the page's place in it."""

    def __init__(self, path: Path, language: str, site: str) -> None:
        self.language, self.site = language, site
        self.top = DOCS / "zh" if language == "zh" else DOCS
        self.page = path.relative_to(self.top).with_suffix("").as_posix()
        self.cells: list[dict[str, Any]] = []
        self.prose = ""

    def read(self, text: str) -> dict[str, Any]:
        """The notebook, in format 4.5."""
        text = ANSWER.sub(_open_code, SITE.sub("", text))
        title, _, rest = text.partition("\n")
        self.prose = f"{title}\n\n{MADE[self.language]}\n"
        end = 0
        for match in MARKED.finditer(rest):
            self.prose += rest[end : match.start()]
            self._marked(match)
            end = match.end()
        self.prose += rest[end:]
        self._close()
        needed = _needed(self.cells)
        cells = [cell for cell in self.cells if not cell["metadata"].get("hidden") or id(cell) in needed]
        for number, cell in enumerate(cells):
            cell["id"] = f"cell-{number}"
            cell["metadata"] = {"tags": ["hide-input"]} if cell["metadata"] else {}
        return {
            "nbformat": 4,
            "nbformat_minor": 5,
            "metadata": {
                "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
                "language_info": {"name": "python"},
            },
            "cells": cells,
        }

    def _marked(self, match: re.Match[str]) -> None:
        """Add what stands between markers, or a picture."""
        if match["role"]:
            self.prose += match["text"]
        elif match["stem"]:
            self.prose += match[0]
        elif match["part"] == "trace":
            words, options = words_of(match["words"])
            prompt, most = json.dumps(options["prompt"], ensure_ascii=False), options.get("max-tokens", 1)
            self._code(f'import zoo\n\nzoo.trace(zoo.load("{words[0]}"), {prompt}, max_tokens={most})')
        elif match["part"]:
            body = match[0].partition("\n")[2].rpartition("\n")[0]
            self.prose += "" if match["part"] == "shapes" else body
        elif match["kind"] == "console":
            lines = match["shown"].partition("```console\n")[2].rpartition("\n```")[0].splitlines()
            commands = [f"!{line[2:]}" for line in lines if line.startswith("$ ")]
            printed = [line for line in lines if not line.startswith("$ ")]
            self._code("\n".join(commands), "\n".join(printed))
        elif match["shown"] is not None:
            found = CODE_LINES.search(match["shown"])
            assert found is not None
            self._code(found[1].rstrip("\n"), (found[2] or "").rstrip("\n"))
        elif match["printed"]:
            self.prose += match["printed"].strip("\n")
        else:
            self._code(match["code"].strip("\n"), hidden=True)

    def _code(self, source: str, printed: str = "", *, hidden: bool = False) -> None:
        """Add a code cell, after the prose before it."""
        self._close()
        output = {"output_type": "stream", "name": "stdout", "text": _lines(f"{printed}\n")}
        self.cells.append(
            {
                "cell_type": "code",
                "id": "",
                "metadata": {"hidden": True} if hidden else {},
                "execution_count": None,
                "source": _lines(source),
                "outputs": [output] if printed else [],
            }
        )

    def _close(self) -> None:
        """Make a cell of the prose that was read, if there is any."""
        text, self.prose = COMMENT.sub("", self.prose), ""
        pictures: dict[str, dict[str, str]] = {}

        def attached(found: re.Match[str]) -> str:
            svg = UNSEEN.sub("", (self.top / FOLDER / found[2]).read_text(encoding="utf-8")).encode()
            if len(svg) > LARGEST:
                return f"*{found[1]}*"
            pictures[found[2]] = {"image/svg+xml": base64.b64encode(svg).decode("ascii")}
            return f"![{found[1]}](attachment:{found[2]})"

        parts = FENCE.split(text)
        parts[::2] = [REFERENCE.sub(self._link, IMAGE.sub(attached, part)) for part in parts[::2]]
        if text := re.sub(r"\n{3,}", "\n\n", "".join(parts)).strip():
            cell = {"cell_type": "markdown", "id": "", "metadata": {}, "source": _lines(text)}
            self.cells.append(cell | ({"attachments": pictures} if pictures else {}))

    def _link(self, found: re.Match[str]) -> str:
        """A link: to a page by the site's address where that is known; elsewhere its words alone."""
        words, target = found.groups()
        if re.match(r"https?:", target):
            return found[0]
        path, _, anchor = target.partition("#")
        name = normpath(join(self.page, "..", path)) if path else f"{self.page}.md"
        if not self.site or not name.endswith(".md") or not (self.top / name).is_file():
            return words
        folder = "zh/" if self.language == "zh" else ""
        return f"[{words}]({self.site.rstrip('/')}/{folder}{name.removesuffix('.md')}.html{f'#{anchor}' if anchor else ''})"


def _open_code(found: re.Match[str]) -> str:
    """An answer with code, without the element around it, which cannot reach over several cells."""
    return f"**{found[1]}**\n{found[2]}" if "<!-- run" in found[2] else found[0]


def _needed(cells: list[dict[str, Any]]) -> set[int]:
    """The hidden cells that leave a name which shown cells use and do not make themselves."""
    trees = {id(cell): ast.parse(source) for cell in cells if (source := _python(cell))}
    hidden = {key for key in trees if any(id(cell) == key and cell["metadata"] for cell in cells)}
    shown = [tree for key, tree in trees.items() if key not in hidden]
    used = {node.id for tree in shown for node in ast.walk(tree) if isinstance(node, ast.Name)}
    used -= {name for tree in shown for name in _defined(tree)}
    return {key for key in hidden if _defined(trees[key]) & used}


def _python(cell: dict[str, Any]) -> str:
    """The Python code of a cell; "" for prose and for commands."""
    source = "".join(cell["source"])
    return "" if cell["cell_type"] != "code" or source.startswith("!") else source


def _defined(tree: ast.Module) -> set[str]:
    """The names that a block leaves."""
    found = {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    return found


def _lines(text: str) -> list[str]:
    """The lines of a cell, as the format has them."""
    return text.splitlines(keepends=True)


def notebook_of(path: Path, site: str = "") -> dict[str, Any]:
    """The notebook of a page's file. `site` is the address of the English site, "" where it is not known."""
    language = "zh" if path.is_relative_to(DOCS / "zh") else "en"
    return Notebook(path, language, site).read(path.read_text(encoding="utf-8"))


def runs_code(notebook: dict[str, Any]) -> bool:
    """Whether there is anything to run in it."""
    return any(cell["cell_type"] == "code" for cell in notebook["cells"])


def add_link(app: Any, page: str, source: list[str]) -> None:
    """Link a page to its notebook, before the line that leads to the next page."""
    path = Path(app.env.doc2path(page))
    if page.startswith(tuple(f"{folder}/" for folder in FOLDERS)) and runs_code(notebook_of(path)):
        up = "../" * page.count("/")
        words = LINK[app.config.zoo_language]
        link = (
            f'<p class="zoo-notebook"><a href="{up}{WITHIN_PAGES}/{path.stem}.ipynb" download>{words}</a></p>'
        )
        body, _, last = source[0].rstrip("\n").rpartition("\n")
        source[0] = f"{body}\n{link}\n\n{last}\n"


def write(app: Any, error: Exception | None) -> None:
    """Write the notebooks beside the pages."""
    if error or app.builder.format != "html":
        return
    base = app.config.html_baseurl
    site = base.removesuffix("zh/") if app.config.zoo_language == "zh" else base
    folder = Path(app.outdir) / WITHIN_PAGES
    for page in app.env.found_docs:
        if page.startswith(tuple(f"{each}/" for each in FOLDERS)):
            path = Path(app.env.doc2path(page))
            if runs_code(notebook := notebook_of(path, site)):
                folder.mkdir(exist_ok=True)
                text = json.dumps(notebook, ensure_ascii=False, indent=1)
                (folder / f"{path.stem}.ipynb").write_text(f"{text}\n", encoding="utf-8")


def setup(app: Any) -> None:
    """Add the links and the notebooks."""
    app.connect("source-read", add_link)
    app.connect("build-finished", write)
