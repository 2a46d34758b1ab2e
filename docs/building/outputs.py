"""What code and commands print, kept in a page's own Markdown between markers. Needs no Sphinx.

    <!-- run python -->         a block of Python, and after it what it prints
    <!-- run console -->        lines that begin with `$ `, each followed by what it prints
    <!-- end -->
    <!-- run python hidden      Python that is not shown, up to the end of the comment
    -->
    <!-- py: EXPRESSION -->TEXT<!-- end -->, <!-- fact: PRESET FACT -->TEXT<!-- end --> and
    <!-- finding: EXPERIMENT NUMBER VERDICT -->TEXT<!-- end --> within a sentence

Parts such as code and comparisons stand between markers of building/page_parts.py, and `![WORDS](pictures/drawn/NAME.svg)`
shows a drawing of docs/figures (building/picture.py).

Options follow the kind: `folder` and `package` as the directives `{python}` and `{console}` have them, `markdown` and
`output-only` for hidden Python whose output is shown, `lines=N`, `exit=N`, `stderr`. An output may differ from the one
in the page in what `MEASURED` and `RATE` find, and in decimals by a hundredth.
"""

from __future__ import annotations

import contextlib
import math
import re
import tempfile
from pathlib import Path
from typing import Any

from building.build_cache import DOCS
from building.page_code import run
from building.page_package import files_of
from building.page_parts import PARTS, Place, drawn, fenced, part, said
from building.picture import FOLDER
from building.shell import Shell

MARKED = re.compile(
    r"^<!-- run (?P<kind>python|console)(?P<options>[^\n]*?)(?: -->\n(?P<shown>.*?)^<!-- end -->"
    r"|\n(?P<code>.*?)^-->(?:\n(?P<printed>(?:(?!^<!-- (?!end)).)*?)^<!-- end -->)?)$"
    r"|<!-- (?P<role>py|fact|finding): (?P<said>[^\n]*?) -->(?P<text>[^\n]*?)<!-- end -->"
    rf"|^<!-- (?P<part>{'|'.join(PARTS)}): (?P<words>[^\n]*?) -->\n.*?^<!-- end -->$"
    rf"|!\[(?P<label>[^\n]*?)\]\((?:\.\./)*{FOLDER}/(?P<stem>[\w.-]+)\.svg\)",
    re.DOTALL | re.MULTILINE,
)
# What depends on the machine and the moment: times, rates, the peak of memory, ids, rounding errors.
NUMBER = r"\d[\d.,]*"
MEASURED = re.compile(
    rf"(?<=peak memory )\d[\d.,]* \w+|(?<=Peak memory: ){NUMBER}|\b\d[\d.]*e-\d+\b"
    rf"|{NUMBER}\s*(?:[mµn]?s|seconds?)\b|{NUMBER}(?=\s*(?:tokens/s|tokens a second|tokens-per-sec))"
    rf'|(?<=_seconds": ){NUMBER}|(?<=_per_second": ){NUMBER}|(?<="peak_memory_bytes": ){NUMBER}'
    r'|(?<="created":)\d+|(?<="id":"cmpl-)\w+'
    rf"|(?<=fits in this memory: ){NUMBER} \w+|\w+ \w+, \d+ cores · .*"
)
RATE = re.compile(r"(?<!\d )(?<!\d)tok(?:ens)?/s")  # heads a column
ROW = re.compile(r"[≠ ]*(peak memory|tokens/s|fits in this memory) {2,}")  # begins a row of such numbers
RATIO = re.compile(rf"{NUMBER}(?= ×(?:  |$))")  # of measured numbers, at the end of their row
DECIMAL = re.compile(r"-?\d+\.\d+")


def same(old: str, new: str) -> bool:
    """Whether two outputs differ in nothing but what depends on the machine."""
    before, after = _without_measured(old), _without_measured(new)
    return len(before) == len(after) and all(
        a == b or _close(a, b) for a, b in zip(before, after, strict=True)
    )


def _close(a: str, b: str) -> bool:
    """Whether two lines differ only in decimals, by a hundredth of them: libraries of matrices round differently."""
    pairs = zip(DECIMAL.findall(a), DECIMAL.findall(b), strict=False)
    near = all(math.isclose(float(x), float(y), rel_tol=0.01, abs_tol=0.005) for x, y in pairs)
    return near and DECIMAL.sub("0", a) == DECIMAL.sub("0", b)


def _without_measured(text: str) -> list[str]:
    """The lines without their measured numbers, those in a column of rates included, and the widths that follow from these."""
    lines: list[str] = []
    columns: list[tuple[int, int]] = []
    measured = False
    for line in text.splitlines():
        masked = MEASURED.sub("0", line)
        if row := ROW.match(line):
            masked = row[1]
        elif not line or line.startswith("$ "):
            columns = []
        elif heads := [match.span() for match in RATE.finditer(line)]:
            columns = heads
        elif columns:
            for number in reversed(list(re.finditer(NUMBER, line))):
                if any(number.start() < end and start < number.end() for start, end in columns):
                    line = f"{line[: number.start()]}0{line[number.end() :]}"
            masked = MEASURED.sub("0", line)
        if masked != line:
            masked = RATIO.sub("0", masked)
        measured = measured or bool(columns) or masked != line
        lines.append(masked)
    return [re.sub("─+", "─", " ".join(line.split())) for line in lines] if measured else lines


class Page:
    """The names, the folder and the shell that the code of one page shares."""

    def __init__(self, text: str, place: Place | None = None) -> None:
        self.text = text
        self.place = place or Place()
        self.names: dict[str, Any] = {"__name__": "page"}
        self.shell = Shell()
        self.folder = tempfile.TemporaryDirectory()

    def rewritten(self) -> str:
        """The page with its outputs made anew; those that differ only by the machine stay."""
        return MARKED.sub(self._one, self.text)

    def _one(self, match: re.Match[str]) -> str:
        old, options = match[0], (match["options"] or "").split()
        if match["stem"]:
            drawn(match["stem"], match["label"], self.place)
            return old
        if match["role"]:
            found = said(match["role"], match["said"], self.names, self.place.language)
            new = f"<!-- {match['role']}: {match['said']} -->{found}<!-- end -->"
        elif match["part"]:
            made = part(match["part"], match["words"], self.place).strip("\n")
            new = f"<!-- {match['part']}: {match['words']} -->\n{made}\n<!-- end -->"
        else:
            make = self._console if match["kind"] == "console" else self._python
            new = make(match, options)
        return old if same(old, new) else new

    def _python(self, match: re.Match[str], options: list[str]) -> str:
        head = f"<!-- run python{match['options']}"
        code = match["code"]
        if code is None:
            code = re.split(r"^```\n", match["shown"].partition("```python\n")[2], maxsplit=1, flags=re.M)[0]
        with contextlib.ExitStack() as stack:
            if "folder" in options:
                stack.enter_context(contextlib.chdir(self.folder.name))
            printed = run(code, self.names).strip("\n")
        printed = "\n".join(line.rstrip() for line in printed.splitlines())
        if "markdown" in options:
            return f"{head}\n{code}-->\n\n{printed}\n\n<!-- end -->"
        output = f"\n{fenced(printed, 'text')}" if printed else ""
        if match["code"] is None:
            return f"{head} -->\n{fenced(code.rstrip(), 'python')}{output}<!-- end -->"
        if "output-only" in options:
            return f"{head}\n{code}-->\n{output}<!-- end -->"
        return match[0]

    def _console(self, match: re.Match[str], options: list[str]) -> str:
        values = dict(option.split("=") for option in options if "=" in option)
        if "package" in options:
            self.shell.page = files_of(self.text)
        wanted = int(values.get("exit", 0))
        shown = []
        for line in match["shown"].splitlines():
            if not line.startswith("$ "):
                continue
            found = self.shell.run(line[2:], wanted)
            error = found["err"] if "stderr" in options or wanted else ""
            output = f"{found['out'].rstrip()}\n{error.rstrip()}".strip("\n")
            lines = [text.rstrip() for text in output.splitlines()]
            limit = int(values.get("lines", len(lines)))
            shown += [line, *lines[:limit], *(["…"] if len(lines) > limit else [])]
        return f"<!-- run console{match['options']} -->\n{fenced(chr(10).join(shown), 'console')}<!-- end -->"


def pages() -> list[Path]:
    """The pages that have markers or drawings, each before its translation, for which what its commands print is kept."""
    found = (path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
    marked = [path for path in found if MARKED.search(path.read_text(encoding="utf-8"))]
    return sorted(marked, key=lambda path: (_untranslated(path), path))


def _untranslated(path: Path) -> Path:
    """A page's path within the folder of its language."""
    return path.relative_to(DOCS / "zh" if path.is_relative_to(DOCS / "zh") else DOCS)


def place_of(path: Path) -> Place:
    """Where a page's parts stand."""
    chinese = path.is_relative_to(DOCS / "zh")
    folder = _untranslated(path).parent
    top = "../" * len(folder.parts)
    return Place(
        "zh" if chinese else "en", path.stem, folder.as_posix(), top, f"{top}../{'../' if chinese else ''}"
    )
