"""The commands of a page, run when the docs are built. Needs no Sphinx."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from figures.server import to_running, to_shown

from building.build_cache import ROOT, cached_result
from building.command_server import AVAILABLE, CommandServer
from building.page_package import installed

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

    def run(self, line: str, status: int) -> dict[str, str]:
        """What a line prints, `out` and `err`. ValueError, which no cache keeps, where its exit status is another."""
        self.lines.append(line)
        found: dict[str, str] = cached_result(
            lambda: self._now(status), "console", self.page, str(status), *self.lines
        )
        return found

    def _now(self, status: int) -> dict[str, str]:
        """Run the last line, and before it those whose results were kept, for the files that they made."""
        result, code = {}, status
        for line in self.lines[self.done :]:
            result, code = self._process(line)
        self.done = len(self.lines)
        if code != status:
            raise ValueError(f"{line!r} ended with {code}, not {status}: {result['err'].strip()}")
        return result

    def _process(self, line: str) -> tuple[dict[str, str], int]:
        if self.folder is None:
            self.folder = tempfile.TemporaryDirectory()
            self.path = installed(self.page, Path(self.folder.name))
        folder = Path(self.folder.name)
        line = to_running(line)
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
            to_shown(text).replace(str(folder), "~").replace(f"{ROOT}/", "")
            for text in (ended.stdout, ended.stderr)
        )
        return {"out": out, "err": err}, ended.returncode


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
