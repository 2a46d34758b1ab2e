"""A page for each architecture, a third party's too, written when the docs are built."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes

from building import architecture_sections as sections
from building.architecture_code import code
from building.architecture_words import WORDS, titled
from building.directive import ZooDirective, html
from building.family import Member, by_task, members
from building.markdown import plain
from zoo.describe.language import in_language
from zoo.host.registry import Registry, default_registry

FOLDER = "architectures"


def page(one: Member, registry: Registry, language: str) -> str:
    """The page of one architecture, as Markdown."""
    words = WORDS[language]
    summary = plain(sentence(one.found.architecture.summary, language))
    parts = [
        f"# {one.name}\n",
        f"{summary}\n",
        sections.about(one, registry, language),
        f"## {words['diagram']}\n",
        sections.diagram(one, registry, language),
    ]
    if one.base:
        parts += [f"## {words['differences'].format(base=one.base)}\n", sections.difference(one, language)]
    parts += [
        f"## {words['run']}\n",
        sections.run(one, language),
        f"## {words['facts']}\n",
        sections.facts(one, registry, language),
        f"## {words['pocket']}\n",
        sections.pocket(one, language),
        f"## {words['code']}\n",
        code(one, registry, language),
        f"## {words['weights']}\n",
        sections.weights(one, registry, language),
        f"## {words['compare']}\n",
        sections.comparisons(one, registry, language),
    ]
    if one.found.architecture.references:
        parts += [f"## {words['references']}\n", sections.references(one)]
    return "\n".join(parts)


def sentence(summary: str, language: str) -> str:
    """A summary as a sentence of its own."""
    text = in_language(summary, language)
    end = "。" if language == "zh" else "."
    return titled(text) + ("" if text.endswith(end) else end)


def write_pages(folder: Path, registry: Registry, language: str) -> None:
    """Write every architecture's page into a folder, and remove those of architectures that are gone."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {folder / f"{name}.md": one for name, one in members(registry).items()}
    for path in set(folder.glob("*.md")) - wanted.keys() - {folder / "index.md"}:
        path.unlink()
    for path, one in wanted.items():
        text = page(one, registry, language)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


class Architectures(ZooDirective):
    """`{architectures}`: links to the pages, those of one task together, the first published first."""

    def made(self) -> list[nodes.Node]:
        among, words = members(), WORDS[self.language]
        up = "" if self.env.docname.startswith(f"{FOLDER}/") else f"{FOLDER}/"
        parts = []
        for task, found in by_task(list(among.values())).items():
            parts.append(f"<h2>{titled(words[f'task {task}'])}</h2><ul>")
            for one in found:
                summary = escape(sentence(one.found.architecture.summary, self.language))
                parts.append(f'<li><a href="{up}{one.name}.html">{one.name}</a>: {summary}</li>')
            parts.append("</ul>")
        return [html("".join(parts))]


def setup(app: Any) -> None:
    """Write the pages before Sphinx looks for them, and add the directives about all architectures."""

    def write(app: Any) -> None:
        write_pages(Path(app.srcdir) / FOLDER, default_registry(), app.config.zoo_language)

    app.connect("builder-inited", write)
    app.add_directive("architectures", Architectures)
    app.add_css_file("architectures.css")
