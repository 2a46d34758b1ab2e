"""What stands in a page between `<!-- KIND: WORDS -->` and `<!-- end -->`, as Markdown. Needs no Sphinx.

    <!-- code: MODULE:NAME -->               the source of a function, a class or a method
    <!-- source: PATH -->                    a whole file, by its path from the root
    <!-- command: NAME -->                   a command of the zoo with its options
    <!-- shapes: MODEL ... at=STAGE -->      the strip of shapes: a picture; options as `building.shapes.strip_of` has them
    <!-- diagram: MODEL ... -->              block diagrams side by side: a picture
    <!-- compare: MODEL MODEL ... -->        the same, the facts as a table, and the differences in words
    <!-- trace: MODEL prompt="..." ... -->   what the site shows there, in a line
    <!-- experiment: NAME PART -->           a part of a lab page, from the experiment's record
    <!-- checkout: all -->                   how to copy the repository, on the site where its address is known
    <!-- pages: NAME ... -->                 a list of pages beside this one: on the site, its contents
    <!-- formulas: NAME ... -->             the formulas of pages beside this one
    <!-- experiments: all -->                the list of experiments
    <!-- extras: all -->                     the table of the extras that pyproject.toml declares

The site puts something to explore in the place of some of them (building/marked.py).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from building.build_cache import DOCS, ROOT
from building.code_of import found_by_name, place_of, source_of
from building.markdown import plain
from building.picture import FOLDER, drawing, picture_file
from zoo.describe.language import in_language

if TYPE_CHECKING:
    from zoo.describe.diagram.model import Diagram

HEADS = {"en": "Fact", "zh": "项目"}
COMPARED = {"en": "{to}, compared with {first}:", "zh": "{to} 与 {first} 相比："}
TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
CHART = re.compile(rf"!\[(.*)\]\({FOLDER}/(\S+)\.svg\)")
SITE = re.compile(r"<!-- site(?::? |\n)(.*?)(?: |\n)-->", re.DOTALL)  # what the site alone has
COMMENT = re.compile(r"<!-- .*?-->")
# A formula, and the paragraph before it if that is one of text.
FORMULA = re.compile(r"(?:((?:^[^\n<`#$|!][^\n]*\n)+)\n)?(^\$\$[^$]+\$\$)$", re.MULTILINE)
SAME = {"en": "nothing differs", "zh": "没有区别"}
DIAGRAM = {
    "en": "Block diagrams of {}, from the tokens below to the output above.",
    "zh": "{} 的结构图，自下而上，从词元到输出。",
}
MARKS = {"en": " What differs is marked.", "zh": "不同之处有标记。"}
CHECKOUT = {"en": "In a copy of the repository, with make:", "zh": "在代码目录中，用 make："}
EXPLORE = {
    "en": "The site shows this run here, to explore. [Live]({live}) runs a prompt of your own; this command writes the same as a page:",
    "zh": "网站在此处显示这次运行的可交互视图。[在浏览器里运行]({live})可以试自己的提示词；下面的命令把同样的内容写成网页：",
}


@dataclass
class Place:
    """Where a part stands: the language of its page, and the way from the page to its language's pages and to the root."""

    language: str = "en"
    name: str = "page"
    folder: str = ""
    top: str = ""
    root: str = "../"
    pictures: dict[str, str] = field(default_factory=dict)  # SVG files by their names, which the parts need

    def picture(self, stem: str, svg: str, label: str) -> str:
        """Markdown that shows an SVG file; `label` says what it shows."""
        self.pictures[stem] = svg
        return f"![{label}]({self.top}{FOLDER}/{stem}.svg)"


def words_of(text: str) -> tuple[list[str], dict[str, str]]:
    """The words of a marker, and its options: `llama at=attention` is (["llama"], {"at": "attention"})."""
    words, options = [], {}
    for word in shlex.split(text):
        name, separator, value = word.partition("=")
        if separator:
            options[name] = value
        else:
            words.append(word)
    return words, options


def part(kind: str, text: str, place: Place) -> str:
    """The Markdown of a part. ValueError for one that cannot be made."""
    words, options = words_of(text)
    return PARTS[kind](words, options, place)


def fenced(text: str, language: str) -> str:
    """A block of code."""
    fence = "````" if "```" in text else "```"
    return f"{fence}{language}\n{text}\n{fence}\n"


def code(words: list[str], options: dict[str, str], place: Place) -> str:
    """The source, under a link to its file."""
    [name] = words
    path = place_of(found_by_name(name))[0].as_posix()
    return f"[`{path}`]({place.root}{path})\n\n{fenced(source_of(name), 'python')}"


def source(words: list[str], options: dict[str, str], place: Place) -> str:
    """A whole file, under a link to it."""
    [path] = words
    text = (ROOT / path).read_text(encoding="utf-8").rstrip()
    return f"[`{path}`]({place.root}{path})\n\n{fenced(text, 'python')}"


def command(words: list[str], options: dict[str, str], place: Place) -> str:
    """The usage, the text and the options of a command."""
    from building.command_help import command_help, parts
    from building.translated import help_in
    from zoo.cli.program import cli

    def written(text: str) -> str:
        found = (f"`{part}`" if is_code else plain(part) for part, is_code in parts(text))
        return "".join(found).replace("|", "\\|")

    found = help_in(place.language, command_help(cli, " ".join(words)))
    shown = [fenced(found.usage, "text"), *map(written, found.text)]
    for title, rows in found.sections:
        escaped = ((name.replace("|", "\\|"), written(text)) for name, text in rows)
        lines = "\n".join(f"| `{name}` | {text} |" for name, text in escaped)
        shown.append(f"| {title} | |\n|---|---|\n{lines}")
    return "\n\n".join(part.strip("\n") for part in shown)


def shapes(words: list[str], options: dict[str, str], place: Place) -> str:
    """The strip."""
    from building import shape_picture
    from building.shapes import strip_of

    strip = strip_of(words, options, place.language)
    stem = f"shapes.{place.name}"
    if stem in place.pictures:
        stem = f"{stem}.{words[0]}"
    return place.picture(stem, shape_picture.picture(strip), shape_picture.words(strip))


def diagram(words: list[str], options: dict[str, str], place: Place) -> str:
    """The diagrams."""
    from zoo.describe.diagram import to_svg

    diagrams = marked_diagrams(words, place.language)
    label = DIAGRAM[place.language].format(("、" if place.language == "zh" else ", ").join(words))
    label += MARKS[place.language] if len(words) > 1 else ""
    stem = ".".join(["diagram", *(word.replace(":", "-").replace("/", "-") for word in words)])
    return place.picture(stem, to_svg(diagrams) + "\n", label)


def compare(words: list[str], options: dict[str, str], place: Place) -> str:
    """The diagrams, a table of the facts but that of this machine's memory, and the differences in words."""
    from zoo.describe import common_context, describe
    from zoo.describe import compare as compare_sheets
    from zoo.describe.differences import differences
    from zoo.describe.facts.sheet import FITS
    from zoo.host.registry import default_registry

    registry, language = default_registry(), place.language
    found = [describe(name, registry) for name in words]
    context = common_context([one.recipe for one in found])
    sheets = [one.sheet(registry, context) for one in found]
    titles = [sheet.title for sheet in sheets]
    lines = [f"| | {' | '.join([HEADS[language], *titles])} |", "|---" * (len(titles) + 2) + "|"]
    for row in compare_sheets(sheets):
        if not row.detail and row.label != FITS and set(row.texts) != {"–"}:
            cells = (plain(in_language(text, language)) for text in (row.label, *row.texts))
            lines.append(f"| {'≠' if row.differs else ''} | {' | '.join(cells)} |")
    told = []
    for title, one in zip(titles[1:], found[1:], strict=True):
        sentences = differences(found[0].recipe, one.recipe) or [SAME[language]]
        told.append(COMPARED[language].format(to=title, first=titles[0]))
        told.append("\n".join(f"- {plain(in_language(text, language))}" for text in sentences))
    return "\n\n".join([diagram(words, options, place), "\n".join(lines), *told])


def trace(words: list[str], options: dict[str, str], place: Place) -> str:
    """What the site shows, and the command for it."""
    settings = "".join(
        f" --{name} {options[name]}" for name in ("max-tokens", "temperature", "seed") if name in options
    )
    command = f'zoo trace {words[0]} "{options["prompt"]}"{settings} --html trace.html'
    return f"{EXPLORE[place.language].format(live=f'{place.top}live/index.md')}\n\n{fenced(command, 'text')}"


def checkout(words: list[str], options: dict[str, str], place: Place) -> str:
    """Where a file is read, the repository is there."""
    return CHECKOUT[place.language]


def pages_beside(names: list[str], place: Place) -> dict[str, tuple[str, str]]:
    """The title and the text of pages beside this one, by name."""
    folder = (DOCS / "zh" if place.language == "zh" else DOCS) / place.folder
    texts = {name: (folder / f"{name}.md").read_text(encoding="utf-8") for name in names}
    return {name: (TITLE.findall(text)[0], text) for name, text in texts.items()}


def pages(words: list[str], options: dict[str, str], place: Place) -> str:
    """A list of pages beside this one, by their titles."""
    return "\n".join(f"- [{title}]({name}.md)" for name, (title, _) in pages_beside(words, place).items())


def formulas(words: list[str], options: dict[str, str], place: Place) -> str:
    """The formulas of pages beside this one, each after the paragraph that introduces it there."""
    found = []
    for name, (title, text) in pages_beside(words, place).items():
        blocks = (each for match in FORMULA.finditer(SITE.sub("", text)) for each in match.groups(""))
        found += [f"## [{title}]({name}.md)", *(COMMENT.sub("", each).strip() for each in blocks if each)]
    return "\n\n".join(found)


def experiment(words: list[str], options: dict[str, str], place: Place) -> str:
    """A part of a lab page, with the files of its charts."""
    from building import lab_page

    name, kind = words
    made = lab_page.PARTS[kind](name, place.language)
    for label, stem in CHART.findall(made):
        drawn(stem, label, place)
    return made.replace(f"]({FOLDER}/", f"]({place.top}{FOLDER}/")


def experiments(words: list[str], options: dict[str, str], place: Place) -> str:
    """The list of all experiments."""
    from building import lab_page

    return lab_page.listed(place.language)


def extras(words: list[str], options: dict[str, str], place: Place) -> str:
    """The table of the extras."""
    from building import extras

    return extras.table_of(place.language)


PARTS: dict[str, Callable[[list[str], dict[str, str], Place], str]] = {
    "code": code,
    "source": source,
    "command": command,
    "shapes": shapes,
    "diagram": diagram,
    "compare": compare,
    "trace": trace,
    "checkout": checkout,
    "pages": pages,
    "formulas": formulas,
    "experiment": experiment,
    "experiments": experiments,
    "extras": extras,
}


def marked_diagrams(names: list[str], language: str) -> list[Diagram]:
    """The diagrams of models in a language, with what differs marked."""
    from zoo.describe import describe
    from zoo.describe.diagram import diagram_in, diagram_of, marked
    from zoo.host.registry import default_registry

    registry = default_registry()
    found = [describe(name, registry) for name in names]
    diagrams = marked([diagram_of(one.recipe, one.origin, registry) for one in found])
    return [diagram_in(one, language) for one in diagrams]


def drawn(stem: str, label: str, place: Place) -> None:
    """The file of a picture that a figure draws."""
    place.picture(stem, picture_file(drawing(stem, place.language)), label)


def said(role: str, text: str, names: dict[str, Any], language: str) -> str:
    """The text that a role stands for within a sentence: `py`, `fact` or `finding`."""
    if role == "py":
        return str(eval(text, names))
    if role == "finding":
        from building import lab_records

        name, number, verdict = text.split(maxsplit=2)
        words = lab_records.finding(name, int(number), verdict)
        return lab_records.in_chinese(words) if language == "zh" else words
    from figures.numbers import sheet

    name, fact, *context = text.split()
    facts = sheet(name, *map(int, context)).facts
    texts = {one.key: one.text for one in facts} | {one.name: one.text for one in facts}
    return in_language(texts[fact], language)
