"""Renders chat templates in sandboxed processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from weakref import finalize

from zoo.errors import TokenizerError

# What a process may use for the renderings of one call.
CPU_SECONDS = 5  # of processor time
CLOCK_SECONDS = (
    60  # by the clock: ends a process that is stopped, not one that others keep from the processor
)
MEMORY = 2**29  # bytes
OUTPUT = 4 * 2**20  # bytes of UTF-8 that it writes

WORKER = Path(__file__).with_name("chat_worker.py")
MOST_IDLE = 4  # processes that wait for another rendering

# A template that gets out of its sandbox should find no secrets in its environment.
ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TZ", "LANG", "LC_ALL")

_POLL = 0.1  # seconds between two checks of a process's memory: a fast one fills gigabytes in a second
_idle: list[Worker] = []


def render_all(template: str, renderings: Sequence[Mapping[str, Any]]) -> list[str | TokenizerError]:
    """Render a template in one process with several sets of variables: the text of each, or its error.

    A process renders one template only, and goes on to wait for its next renderings. Threads may render at the same time,
    in several processes. TokenizerError, starting with "chat template:", for variables that are no JSON, for a template that
    is malformed, and where the process uses more than `CPU_SECONDS`, `CLOCK_SECONDS`, `MEMORY` or `OUTPUT`.
    """
    limits = {"cpu_seconds": CPU_SECONDS, "memory_bytes": MEMORY, "output_bytes": OUTPUT}
    request = plain_json({"renderings": renderings, **limits})
    worker = _take(template)
    try:
        answers = worker.answer(request, len(renderings))
    except BaseException:
        worker.kill()
        raise
    _put_back(worker)
    return [answer["text"] if "text" in answer else _refusal(answer["error"]) for answer in answers]


def start_rendering(template: str) -> None:
    """Start a process for a template, so that its first rendering does not wait; an error is raised by that rendering."""
    with suppress(TokenizerError):
        _put_back(_take(template))


def plain_json(value: object) -> str:
    """The variables of a template as JSON text; TokenizerError for values that JSON cannot hold."""
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise _refusal(f"a message or argument is not plain data ({error})") from None


def check_size(value: object) -> None:
    """TokenizerError for plain data with more text than a template may write, before any of it is copied."""
    size, level = 0, [value]
    while level:
        size += sum(len(text.encode("utf-8", "surrogatepass")) for text in level if isinstance(text, str))
        if size > OUTPUT:
            raise _refusal(f"the messages and variables have more than {OUTPUT / 2**20:g} MiB of text")
        level = [
            inner
            for outer in level
            if isinstance(outer, Mapping | list | tuple)
            for inner in ((*outer, *outer.values()) if isinstance(outer, Mapping) else outer)
        ]


class Worker:
    """A process that runs chat_worker.py for one template. It ends when the socket to it is closed."""

    def __init__(self, template: str) -> None:
        """TokenizerError where the process cannot be started."""
        self.template = template
        self._socket, other = socket.socketpair()
        folders = list(dict.fromkeys(map(_library_folder, ("jinja2", "markupsafe"))))
        with other:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(WORKER), *folders],
                    stdin=other.fileno(),
                    stdout=other.fileno(),
                    stderr=subprocess.DEVNULL,
                    env={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
                    start_new_session=True,  # Ctrl-C in a terminal does not reach it
                )
            except OSError as error:
                raise _refusal(f"its process cannot be started ({error.strerror})") from None
        self.kill = finalize(self, _end, self._socket, self._process)  # also at the end of this process
        self._unsent = json.dumps(template) + "\n"

    @property
    def lives(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def answer(self, request: str, count: int) -> list[dict[str, str]]:
        """What the process answers to a request of `count` renderings; TokenizerError where that is no text or error for each."""
        line = self._exchange(f"{self._unsent}{request}\n".encode("ascii"))
        self._unsent = ""
        try:
            answers = json.loads(line)
        except (ValueError, RecursionError):
            answers = None
        if isinstance(answers, list) and len(answers) == count and all(map(_is_answer, answers)):
            return answers
        if isinstance(answers, dict) and _is_answer(answers):
            raise _refusal(answers["error"])
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(0 if line else 1)
        status = self._process.returncode
        if status == -signal.SIGPROF:
            raise _refusal(f"took more than {CPU_SECONDS:g} s of processor time")
        raise _refusal(f"its process ended without an answer (status {status})")

    def _exchange(self, request: bytes) -> bytes:
        """The line that the process answers, empty where it ends before; TokenizerError where it has to be killed."""
        deadline = time.monotonic() + CLOCK_SECONDS
        most = 6 * OUTPUT + 2**16  # JSON writes a byte as six at the most
        answer = bytearray()
        with suppress(ConnectionError):  # it ended
            self._socket.settimeout(CLOCK_SECONDS)
            with suppress(TimeoutError):
                self._socket.sendall(request)
            self._socket.settimeout(_POLL)
            while not answer.endswith(b"\n"):
                if time.monotonic() > deadline:
                    raise _refusal(f"took longer than {CLOCK_SECONDS:g} s")
                try:
                    piece = self._socket.recv(2**16)
                except TimeoutError:
                    if _resident_bytes(self._process.pid) > MEMORY:
                        raise _refusal("ran out of memory") from None
                    continue
                if not piece:
                    break
                answer += piece
                if len(answer) > most:
                    raise _refusal(f"wrote more than {OUTPUT / 2**20:g} MiB")
        return bytes(answer)


def _refusal(reason: str) -> TokenizerError:
    return TokenizerError(f"chat template: {reason}")


def _end(connection: socket.socket, process: subprocess.Popen[bytes]) -> None:
    """End a process."""
    connection.close()
    process.kill()
    process.wait()


def _take(template: str) -> Worker:
    """An idle process of this template that no other call has now, or a new one."""
    for worker in [*_idle]:
        if worker.template == template:
            with suppress(ValueError):  # another thread has taken it
                _idle.remove(worker)
                if worker.lives:
                    return worker
                worker.kill()
    return Worker(template)


def _put_back(worker: Worker) -> None:
    """Let a process wait for the next rendering; end the one that has waited longest where there are too many."""
    _idle.append(worker)
    while len(_idle) > MOST_IDLE:
        _idle.pop(0).kill()


def _is_answer(answer: object) -> bool:
    """Whether it is the text or the error of a rendering."""
    return isinstance(answer, dict) and any(isinstance(answer.get(key), str) for key in ("text", "error"))


@lru_cache
def _library_folder(name: str) -> str:
    """The folder in which jinja2 or its dependency is installed."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise _refusal(f"needs the {name} package (pip install jinja2)")
    return str(Path(spec.origin).parent.parent)


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
