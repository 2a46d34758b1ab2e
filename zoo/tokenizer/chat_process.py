"""Renders chat templates in sandboxed processes."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from zoo.errors import TokenizerError
from zoo.tokenizer.fork_server import ForkServer

# What a process that renders may use.
CPU_SECONDS = 5  # of processor time
CLOCK_SECONDS = (
    60  # by the clock: ends a process that is stopped, not one that others keep from the processor
)
MEMORY = 2**29  # bytes
OUTPUT = 4 * 2**20  # bytes of UTF-8 that it writes

SERVER = ForkServer(Path(__file__).with_name("chat_worker.py"))

_POLL = 0.1  # seconds between two checks of a process's memory: a fast one fills gigabytes in a second


def render_all(template: str, renderings: Sequence[Mapping[str, Any]]) -> list[str | TokenizerError]:
    """Render a template in one process with several sets of variables: the text of each, or its error.

    TokenizerError, starting with "chat template:", for variables that are no JSON, for a template that is malformed, and
    where the process uses more than `CPU_SECONDS`, `CLOCK_SECONDS`, `MEMORY` or `OUTPUT`.
    """
    answers = _answer({"code": _compiled(template), "renderings": renderings})["answers"]
    return [
        made["text"] if "text" in made else TokenizerError(f"chat template: {made['error']}")
        for made in answers
    ]


def plain_json(value: object) -> str:
    """The variables of a template as JSON text; TokenizerError for values that JSON cannot hold."""
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise TokenizerError(f"chat template: a message or argument is not plain data ({error})") from None


def check_size(value: object) -> None:
    """TokenizerError for plain data with more text than a template may write, before any of it is copied."""
    size, level = 0, [value]
    while level:
        size += sum(len(text.encode("utf-8", "surrogatepass")) for text in level if isinstance(text, str))
        if size > OUTPUT:
            raise TokenizerError(
                f"chat template: the messages and variables have more than {OUTPUT / 2**20:g} MiB of text"
            )
        level = [
            inner
            for outer in level
            if isinstance(outer, Mapping | list | tuple)
            for inner in ((*outer, *outer.values()) if isinstance(outer, Mapping) else outer)
        ]


@lru_cache
def _library_folder(name: str) -> str:
    """The folder in which jinja2 or its dependency is installed."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise TokenizerError(f"chat template: needs the {name} package (pip install jinja2)")
    return str(Path(spec.origin).parent.parent)


@lru_cache(maxsize=8)
def _compiled(template: str) -> str:
    """The code of a template, as text that only the processes that render read."""
    code: str = _answer({"template": template})["code"]
    return code


def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """What a process answers to a request of chat_worker.py; TokenizerError for an error."""
    limits = {"cpu_seconds": CPU_SECONDS, "memory_bytes": MEMORY, "output_bytes": OUTPUT}
    written, reason = _run(plain_json({**request, **limits}).encode("ascii"))
    try:
        answer = json.loads(written)
    except (ValueError, RecursionError):
        answer = None
    if isinstance(answer, dict):
        if isinstance(answer.get("error"), str):
            reason = answer["error"]
        elif _complete(answer, request):
            return answer
    raise TokenizerError(f"chat template: {reason}")


def _complete(answer: Mapping[str, Any], request: Mapping[str, Any]) -> bool:
    """Whether an answer has the code, or a text or an error for each rendering."""
    if "renderings" not in request:
        return isinstance(answer.get("code"), str)
    answers = answer.get("answers")
    if not isinstance(answers, list) or len(answers) != len(request["renderings"]):
        return False
    return all(
        isinstance(made, dict) and any(isinstance(made.get(key), str) for key in ("text", "error"))
        for made in answers
    )


def _run(request: bytes) -> tuple[bytes, str]:
    """What a process writes, and the reason to give if that is no answer."""
    folders = list(dict.fromkeys(map(_library_folder, ("jinja2", "markupsafe"))))
    reading, writing = os.pipe()
    with open(reading, "rb", buffering=0), tempfile.TemporaryFile() as file:
        try:
            file.write(request)  # a pipe would block until it is read
            file.seek(0)
            pid = SERVER.fork(folders, [file.fileno(), writing])
        except OSError as error:
            return b"", f"its process cannot be started ({error.strerror})"
        finally:
            os.close(writing)
        try:
            written, reason = _read(reading, pid)
        finally:
            status = SERVER.end(pid)
    if status in (-signal.SIGXCPU, -signal.SIGKILL):
        reason = reason or f"took more than {CPU_SECONDS:g} s of processor time"
    return written, reason or f"its process ended without an answer (status {status})"


def _read(file: int, pid: int) -> tuple[bytes, str | None]:
    """What a process writes to a pipe until it ends, or the reason why it must be stopped."""
    deadline = time.monotonic() + CLOCK_SECONDS
    most = 6 * OUTPUT + 2**16  # JSON writes a byte as six at the most
    written = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(file, selectors.EVENT_READ)
        while True:
            if selector.select(_POLL):
                piece = os.read(file, 2**16)
                if not piece:
                    return bytes(written), None
                written += piece
                if len(written) > most:
                    return b"", f"wrote more than {OUTPUT / 2**20:g} MiB"
            elif _resident_bytes(pid) > MEMORY:
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
