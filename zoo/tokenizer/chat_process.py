"""Renders chat templates in a sandboxed process."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from zoo.errors import TokenizerError

# What a process that renders may use.
CPU_SECONDS = 5  # of processor time
CLOCK_SECONDS = (
    600  # by the clock: ends a process that waits, not one that other programs keep from the processor
)
MEMORY = 2**29  # bytes
OUTPUT = 4 * 2**20  # bytes of UTF-8 that it writes

_POLL = 0.1  # seconds between two checks of the child's memory: a fast one fills gigabytes in a second


def render_all(template: str, renderings: Sequence[Mapping[str, Any]]) -> list[str | TokenizerError]:
    """Render a template in one process with several sets of variables: the text of each, or its error.

    TokenizerError, starting with "chat template:", for variables that are no JSON, for a template that is malformed, and
    where the process uses more than `CPU_SECONDS`, `CLOCK_SECONDS`, `MEMORY` or `OUTPUT`.
    """
    request = {
        "template": template,
        "renderings": renderings,
        "path": list(dict.fromkeys(map(_library_folder, ("jinja2", "markupsafe")))),
        "cpu_seconds": CPU_SECONDS,
        "memory_bytes": MEMORY,
        "output_bytes": OUTPUT,
    }
    answer = _render_in_process(plain_json(request).encode("ascii"), len(renderings))
    if "error" in answer:
        raise TokenizerError(f"chat template: {answer['error']}")
    return [
        made["text"] if "text" in made else TokenizerError(f"chat template: {made['error']}")
        for made in answer["answers"]
    ]


def plain_json(value: object) -> str:
    """The variables of a template as JSON text; TokenizerError for values that JSON cannot hold."""
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise TokenizerError(f"chat template: a message or argument is not plain data ({error})") from None


def _library_folder(name: str) -> str:
    """The folder in which jinja2 or its dependency is installed."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise TokenizerError(f"chat template: needs the {name} package (pip install jinja2)")
    return str(Path(spec.origin).parent.parent)


def _render_in_process(request: bytes, count: int) -> dict[str, Any]:
    """The answer of the rendering process: {"answers": [...]}, `count` of them, or {"error": ...}."""
    script = Path(__file__).with_name("chat_worker.py")
    # A template that gets out of the sandbox should find no secrets in its environment.
    kept = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TZ", "LANG", "LC_ALL")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    with tempfile.TemporaryFile() as file:  # writing to a pipe blocks until it is read
        file.write(request)
        file.seek(0)
        try:
            child = subprocess.Popen(
                [sys.executable, "-I", "-S", str(script)],
                stdin=file,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
        except OSError as error:
            return {"error": f"its process cannot be started ({error.strerror})"}
    with child:
        try:
            written, reason = _read(child)
        finally:
            child.kill()  # does nothing to one that has ended
    if reason is not None:
        return {"error": reason}
    try:
        answer = json.loads(written)
    except (ValueError, RecursionError):
        answer = None
    if isinstance(answer, dict) and (isinstance(answer.get("error"), str) or _complete(answer, count)):
        return answer
    if child.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return {"error": f"took more than {CPU_SECONDS:g} s of processor time"}
    return {"error": f"its process ended without an answer (status {child.returncode})"}


def _complete(answer: Mapping[str, Any], count: int) -> bool:
    """Whether an answer has a text or an error for each of `count` renderings."""
    answers = answer.get("answers")
    if not isinstance(answers, list) or len(answers) != count:
        return False
    return all(
        isinstance(made, dict) and any(isinstance(made.get(key), str) for key in ("text", "error"))
        for made in answers
    )


def _read(child: subprocess.Popen[bytes]) -> tuple[bytes, str | None]:
    """The output of a process until it ends, or the reason why it must be stopped."""
    assert child.stdout is not None
    deadline = time.monotonic() + CLOCK_SECONDS
    most = 6 * OUTPUT + 2**16  # JSON writes a byte as six at the most
    written = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while True:
            if selector.select(_POLL):
                piece = os.read(child.stdout.fileno(), 2**16)
                if not piece:
                    return bytes(written), None
                written += piece
                if len(written) > most:
                    return b"", f"wrote more than {OUTPUT / 2**20:g} MiB"
            elif _resident_bytes(child.pid) > MEMORY:
                return b"", "ran out of memory"
            if time.monotonic() > deadline:
                return b"", f"took longer than {CLOCK_SECONDS:g} s"


def _resident_bytes(pid: int) -> int:
    """The memory of a process, 0 where the system does not say."""
    pages = Path(f"/proc/{pid}/statm")  # Linux
    try:
        if pages.exists():
            return int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        output = subprocess.run(
            ["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, timeout=1, check=False
        ).stdout
        return int(output) * 1024
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return 0
