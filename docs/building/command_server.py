"""Runs commands of the zoo, each in a process of its own that is forked from one which has imported the zoo already.

Starting Python and importing takes longer than most commands on a page. `CommandServer` is the side that asks; this file
run as a script is the process that forks. It has read no plugin list and run no model: a command finds what it would find.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

AVAILABLE = sys.platform == "linux"  # macOS' libraries do not bear a fork
MODULES = (
    *("zoo.cli.program", "zoo.loading", "zoo.generation", "zoo.describe", "zoo.inspect", "zoo.training"),
    *("mlx.core", "mlx.nn", "numpy", "tokenizers", "safetensors", "rich.table"),
)


class CommandServer:
    """The process that forks, started when the first command is asked for. Raises `subprocess.TimeoutExpired`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.process: subprocess.Popen[str] | None = None

    def run(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """What `python -m zoo WORDS` prints and how it ends, in a folder, with an environment."""
        if self.process is None or self.process.poll() is not None:
            self.process = self._started(environment)
        assert self.process.stdin is not None and self.process.stdout is not None
        with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
            request = {"words": list(words), "folder": str(folder), "environment": dict(environment)}
            self.process.stdin.write(json.dumps(request | {"out": out.name, "err": err.name}) + "\n")
            self.process.stdin.flush()
            if not select.select([self.process.stdout], [], [], self.seconds)[0]:
                self.process.kill()
                raise subprocess.TimeoutExpired(list(words), self.seconds)
            answer = self.process.stdout.readline()
            if not answer:
                raise RuntimeError(f"the process that runs commands ended: {words}")
            texts = (Path(file.name).read_text(encoding="utf-8") for file in (out, err))
            return subprocess.CompletedProcess(list(words), json.loads(answer), *texts)

    def _started(self, environment: Mapping[str, str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [
                sys.executable,
                "-P",
                __file__,
            ],  # without this folder on its path, whose files are named as Python's own
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )


def serve() -> None:
    """Fork for each line of the input, and write how the process ended; returns in the forked ones."""
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            return become(json.loads(line))
        ended = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        print(json.dumps(ended), flush=True)
    os._exit(0)


def become(request: dict[str, Any]) -> None:
    """Make this process one that has been started for a command: its folder, environment, input and outputs."""
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for number, name, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, request["out"], os.O_WRONLY),
        (2, request["err"], os.O_WRONLY),
    ):
        opened = os.open(name, flags)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.argv = ["zoo", *request["words"]]


if __name__ == "__main__":
    from importlib import import_module

    for module in MODULES:
        import_module(module)
    serve()
    sys.exit(sys.modules["zoo.cli.program"].main())
