"""Renders chat templates in separate processes: a script that the zoo never imports, run by `ForkServer`.

A template is a program from an untrusted checkpoint: it may loop for ever, build strings of gigabytes, or try to escape
from the sandbox. So this file imports nothing of the zoo, and forks a process with limits for each request. The process
that forks reads no request. Its arguments are the folders to find jinja2 in. A request is a file with a JSON object:

- `template`, to be compiled
- or `code`, the answer to such a request, and `renderings`, a list of the variables that the template sees each time
- `cpu_seconds`, `memory_bytes`, `output_bytes`: the limits of the process

The answer, written to another file, is `{"code": ...}`, or `{"answers": [...]}` with `{"text": ...}` or `{"error": ...}` for
each rendering. It is `{"error": ...}` for a malformed template and beyond a limit. An error is the reason in one line.
"""

from __future__ import annotations

import base64
import contextlib
import json
import marshal
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any

NUMBER = struct.Struct("i")  # as in fork_server.py

Object = dict[str, Any]


def serve(answer: Callable[[Object], Object]) -> None:
    """Fork and end processes as `ForkServer` asks, until it closes the socket."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=sys.stdin.fileno())
    running = set()
    try:
        while True:
            number, files, *_ = socket.recv_fds(connection, NUMBER.size, 2)
            if not number:
                break
            (pid,) = NUMBER.unpack(number)
            reply = 1
            if files:
                reply = os.fork()
                if not reply:
                    connection.close()
                    answer_and_exit(answer, *files)
                running.add(reply)
                for file in files:
                    os.close(file)
            elif pid in running:
                running.remove(pid)
                os.kill(pid, signal.SIGKILL)  # one that has ended keeps its pid until it is waited for
                reply = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            connection.sendall(NUMBER.pack(reply))
    finally:
        for pid in running:
            os.kill(pid, signal.SIGKILL)


def answer_and_exit(answer: Callable[[Object], Object], request: int, output: int) -> None:
    """Read a request from a file, write its answer to another, and end this process, which closes them."""
    status = 1
    try:
        with open(request, "rb", closefd=False) as read:
            answered = json.dumps(answer(json.load(read)))
        with open(output, "w", encoding="ascii", closefd=False) as written:
            written.write(answered)
        status = 0
    finally:
        os._exit(status)


def answer(request: Object) -> Object:
    """The answer to a request."""
    try:
        environment = make_environment()
        limit_process(request["cpu_seconds"], request["memory_bytes"])
        # Compiling evaluates filters of constants, even without the optimizer: it is done under the limits. It is done
        # where no variables are known, since the code also renders other conversations.
        if "code" not in request:
            code = marshal.dumps(environment.compile(request["template"]))
            return {"code": base64.b64encode(code).decode("ascii")}
        return {"answers": render_all(environment, request)}
    except Exception as error:
        return {"error": reason(error)}


class OutputLimit(Exception):
    """The template wrote more than it may."""


def render_all(environment: Any, request: Object) -> list[dict[str, str]]:
    """The text or the error of each rendering; one that is beyond a limit ends them all."""
    code = marshal.loads(base64.b64decode(request["code"]))
    template = environment.template_class.from_code(environment, code, environment.make_globals(None))
    answers, size = [], 0
    for variables in request["renderings"]:
        pieces = []
        try:
            for piece in template.generate(variables):
                size += len(piece.encode("utf-8", "surrogatepass"))
                if size > request["output_bytes"]:
                    raise OutputLimit(f"wrote more than {request['output_bytes'] / 2**20:g} MiB")
                pieces.append(piece)
        except (OutputLimit, MemoryError, RecursionError):
            raise
        except Exception as error:
            answers.append({"error": reason(error)})
        else:
            answers.append({"text": "".join(pieces)})
    return answers


def reason(error: Exception) -> str:
    """What an error says, in one line with the line of the template."""
    if isinstance(error, MemoryError):
        return "ran out of memory"
    if isinstance(error, RecursionError):
        return "calls itself too deeply"
    line = getattr(error, "lineno", None)
    message = " ".join(str(error).split()) or type(error).__name__
    return (f"line {line}: " if line else "") + message[:400]


def limit_process(cpu_seconds: int, memory_bytes: int) -> None:
    """Limit this process's resources: the system ends it beyond a limit, or refuses more memory or files.

    Some systems support only some of the limits (macOS has none for memory); the parent process watches the others.
    """
    limits = {"CPU": cpu_seconds, "AS": memory_bytes, "CORE": 0, "FSIZE": 0, "NPROC": 0}
    for name, wanted in limits.items():
        with contextlib.suppress(AttributeError, ValueError, OSError):
            kind = getattr(resource, f"RLIMIT_{name}")
            _, most = resource.getrlimit(kind)
            value = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
            resource.setrlimit(kind, (value, value))


def make_environment() -> Any:
    """The Jinja sandbox with the filters and functions of transformers' `apply_chat_template`."""
    from datetime import datetime

    from jinja2 import nodes
    from jinja2.exceptions import TemplateError
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        # Marks the assistant's text, for training; it renders its body.
        tags = frozenset({"generation"})  # type: ignore[assignment]

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            return nodes.Scope(
                parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line
            )

    def raise_exception(message: object) -> None:
        raise TemplateError(str(message))

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda format: datetime.now().strftime(format)
    environment.globals["namespace"] = public_namespace()
    return environment


def to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """The filter `tojson`. Jinja's own escapes for HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def public_namespace() -> type:
    """The class of Jinja's `namespace` without names that begin with "_": they could pose as Python's attributes."""
    from jinja2.exceptions import SecurityError
    from jinja2.utils import Namespace

    def check_name(name: str) -> None:
        if name.startswith("_"):
            raise SecurityError(f"a namespace may not hold {name!r}")

    class PublicNamespace(Namespace):
        def __init__(*args: Any, **kwargs: Any) -> None:  # as in jinja2, so that "self" can be a name
            values = dict(*args[1:], **kwargs)
            for name in values:
                check_name(name)
            Namespace.__init__(args[0], values)

        def __setitem__(self, name: str, value: object) -> None:
            check_name(name)
            Namespace.__setitem__(self, name, value)

    return PublicNamespace


if __name__ == "__main__":
    sys.path.extend(sys.argv[1:])  # last, so that nothing there can stand in for a standard module
    with contextlib.suppress(Exception):  # an error here is that of each request
        make_environment()  # imports jinja2
    serve(answer)
