"""`{console}`: commands that are run when the docs are built, with what they print."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives

from building.build_cache import ROOT, cached_result
from building.command_server import AVAILABLE, CommandServer
from building.directive import ZooDirective, boxed, literal, page_data
from building.page_package import files_of, installed

WIDTH = 100  # columns of the terminal
SECONDS = 120


class Shell:
    """The commands of one page, run in a folder that is empty at first, or holds what `page` shows, installed."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.done = 0
        self.folder: Any = None
        self.page = ""
        self.path = ""

    def run(self, line: str) -> dict[str, Any]:
        """What a line prints: `out`, `err` and its exit status `code`."""
        self.lines.append(line)
        found: dict[str, Any] = cached_result(self._now, "console", self.page, *self.lines)
        return found

    def _now(self) -> dict[str, Any]:
        """Run the last line, and before it those whose results were kept, for the files that they made."""
        result: dict[str, Any] = {}
        for line in self.lines[self.done :]:
            result = self._process(line)
        self.done = len(self.lines)
        return result

    def _process(self, line: str) -> dict[str, Any]:
        if self.folder is None:
            self.folder = tempfile.TemporaryDirectory()
            self.path = installed(self.page, Path(self.folder.name))
        folder = Path(self.folder.name)
        words = shlex.split(line, comments=True)
        environment = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "COLUMNS": str(WIDTH),
            **{name: value for name, value in os.environ.items() if name.endswith("_NUM_THREADS")},
            **({"PYTHONPATH": self.path} if self.path else {}),
        }
        ended = ended_process(words, line, folder, environment)
        out, err = (
            text.replace(str(folder), "~").replace(f"{ROOT}/", "") for text in (ended.stdout, ended.stderr)
        )
        return {"out": out, "err": err, "code": ended.returncode}


def ended_process(
    words: list[str], line: str, folder: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """How a line ended: a command of the zoo by the server of commands, where that finds all that it needs."""
    piped = bool({"|", ">"} & set(words))
    if words[0] == "zoo" and not piped and AVAILABLE and "PYTHONPATH" not in environment:
        return server(os.getpid()).run(words[1:], folder, environment)
    if piped:
        words = ["sh", "-c", line]
    elif words[0] == "zoo":
        words = [sys.executable, "-m", "zoo", *words[1:]]
    elif words[0] == "python":
        words[0] = sys.executable
    return subprocess.run(
        words,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=SECONDS,
    )


@cache
def server(process: int) -> CommandServer:
    """The server of commands of a process, by its id: a forked one must not share its parent's."""
    return CommandServer(SECONDS)


class Console(ZooDirective):
    """Lines that begin with `$ `, run one after the other.

    `:package:` on the first of a page installs the package that the page tells its reader to write.
    """

    has_content = True
    option_spec = {  # noqa: RUF012
        "lines": directives.positive_int,
        "stderr": directives.flag,
        "exit": directives.nonnegative_int,
        "package": directives.flag,
    }

    def made(self) -> list[nodes.Node]:
        shell = page_data(self.env, "zoo-shell", Shell)
        if "package" in self.options:
            shell.page = files_of(Path(self.env.doc2path(self.env.docname)).read_text(encoding="utf-8"))
        wanted = self.options.get("exit", 0)
        shown = []
        for line in self.content:
            if not line.startswith("$ "):
                raise ValueError(f"a line must begin with '$ ': {line!r}")
            found = shell.run(line[2:])
            if found["code"] != wanted:
                raise ValueError(f"{line!r} ended with {found['code']}, not {wanted}: {found['err'].strip()}")
            shown.append(line)
            both = found["err"] if "stderr" in self.options or wanted else ""
            output = (found["out"].rstrip() + "\n" + both.rstrip()).strip("\n")
            lines = [text.rstrip() for text in output.splitlines()]
            limit = self.options.get("lines", len(lines))
            shown += [*lines[:limit], "…"] if len(lines) > limit else lines
        return [boxed(literal("\n".join(shown), "console"), classes=("zoo-console",))]


def setup(app: Any) -> None:
    """Add the directive."""
    app.add_directive("console", Console)
