"""What code and commands print, kept in a page's own Markdown between markers. Needs no Sphinx.

    <!-- run python -->         a block of Python, and after it what it prints
    <!-- run console -->        lines that begin with `$ `, each followed by what it prints
    <!-- end -->
    <!-- run python hidden      Python that is not shown, up to the end of the comment
    -->
    <!-- py: EXPRESSION -->TEXT<!-- end -->, and <!-- fact: PRESET FACT -->TEXT<!-- end --> within a sentence

Options follow the kind: `folder` and `package` as the directives `{python}` and `{console}` have them, `markdown` and
`output-only` for hidden Python whose output is shown, `lines=N`, `exit=N`, `stderr`. An output may differ from the one
in the page in times, rates, the peak of memory and numbers as small as rounding errors (`3e-07`), in decimals by a hundredth, and
with `varies` in all numbers.
"""

from __future__ import annotations

import contextlib
import math
import re
import tempfile
from collections.abc import Callable
from typing import Any

from figures.numbers import sheet

from building.page_code import run
from building.page_package import files_of
from building.shell import Shell

MARKED = re.compile(
    r"^<!-- run (?P<kind>python|console)(?P<options>[^\n]*?)(?: -->\n(?P<shown>.*?)^<!-- end -->"
    r"|\n(?P<code>.*?)^-->(?:\n(?P<printed>(?:(?!^<!-- run ).)*?)^<!-- end -->)?)$"
    r"|<!-- (?P<role>py|fact): (?P<said>[^\n]*?) -->(?P<text>[^\n]*?)<!-- end -->",
    re.DOTALL | re.MULTILINE,
)
MEASURED = re.compile(
    r"(?<=peak memory )\d[\d.,]* \w+|\b\d[\d.]*e-\d+\b|\d[\d.,]*(?=\s*(?:[mµn]?s\b|seconds?\b|tokens/s|tokens a second))"
)
DECIMAL = re.compile(r"-?\d+\.\d+")
NUMBER = re.compile(r"\b[0-9a-f]{8,}\b|\d[\d.,]*")


def same(old: str, new: str, varies: bool) -> bool:
    """Whether two outputs differ in nothing but what depends on the machine."""
    mask = NUMBER if varies else MEASURED
    before, after = old.splitlines(), new.splitlines()
    if len(before) != len(after):
        return False
    for a, b in zip(before, after, strict=True):
        if a != b and not (mask.search(a) and _masked(a, mask) == _masked(b, mask)) and not _close(a, b):
            return False
    return True


def _close(a: str, b: str) -> bool:
    """Whether two lines differ only in decimals, by a hundredth of them: libraries of matrices round differently."""
    pairs = zip(DECIMAL.findall(a), DECIMAL.findall(b), strict=False)
    near = all(math.isclose(float(x), float(y), rel_tol=0.01, abs_tol=0.005) for x, y in pairs)
    return near and DECIMAL.sub("0", a) == DECIMAL.sub("0", b)


def _masked(line: str, mask: re.Pattern[str]) -> str:
    """A line without its measured numbers and without the widths that follow from them."""
    return " ".join(mask.sub("0", line).split())


def fenced(text: str, language: str) -> str:
    """A block of code."""
    fence = "````" if "```" in text else "```"
    return f"{fence}{language}\n{text}\n{fence}\n"


class Page:
    """The names, the folder and the shell that the code of one page shares."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.names: dict[str, Any] = {"__name__": "page"}
        self.shell = Shell()
        self.folder = tempfile.TemporaryDirectory()

    def rewritten(self) -> str:
        """The page with its outputs made anew; those that differ only by the machine stay."""
        return MARKED.sub(self._one, self.text)

    def _one(self, match: re.Match[str]) -> str:
        old = match[0]
        options = (match["options"] or "").split()
        make: Callable[[re.Match[str], list[str]], str] = self._sentence
        if match["kind"]:
            make = self._console if match["kind"] == "console" else self._python
        new = make(match, options)
        return old if same(old, new, "varies" in options) else new

    def _sentence(self, match: re.Match[str], options: list[str]) -> str:
        if match["role"] == "py":
            found = str(eval(match["said"], self.names))
        else:
            name, fact, *context = match["said"].split()
            facts = sheet(name, *map(int, context)).facts
            found = ({one.key: one.text for one in facts} | {one.name: one.text for one in facts})[fact]
        return f"<!-- {match['role']}: {match['said']} -->{found}<!-- end -->"

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
