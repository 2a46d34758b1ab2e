"""Renders chat templates: a script that runs in a process of its own and that the zoo never imports.

A template is a program from an untrusted checkpoint: it may loop for ever, build strings of gigabytes, or try to escape
from the sandbox. So this file imports nothing of the zoo, and its process has limits and serves one template. Its arguments
are the folders to find jinja2 in. It reads JSON lines: the template, then objects with

- `renderings`, a list of the variables that the template sees each time
- `cpu_seconds`, `memory_bytes`, `output_bytes`: the limits of these renderings

The answer to an object is a line, too: a list with `{"text": ...}` or `{"error": ...}` for each rendering, or `{"error": ...}`
for a malformed template and beyond a limit. An error is the reason in one line.
"""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import sys
from typing import Any

Object = dict[str, Any]

IMPORTING = r"""{{ '\N{HYPHEN}' | striptags | wordwrap | pprint | tojson }}{{ strftime_now('%c') }}{{ lipsum(1) }}{{ raise_exception('') }}"""
"""Imports what Jinja and Python import only where it is used: once the process is limited, it opens no files."""


class OutputLimit(Exception):
    """The template wrote more than it may."""


def serve() -> None:
    """Answer the lines of the standard input."""
    environment = make_environment()
    with contextlib.suppress(Exception):
        environment.from_string(IMPORTING).render()
    source, template = json.loads(sys.stdin.readline()), None
    answer: object
    for line in sys.stdin:
        request = json.loads(line)
        limit_process(request["cpu_seconds"], request["memory_bytes"])
        try:
            if template is None:
                template = environment.from_string(source)  # evaluates filters of constants
            answer = render_all(template, request)
        except Exception as error:
            answer = {"error": reason(error)}
        print(json.dumps(answer), flush=True)
        signal.setitimer(signal.ITIMER_PROF, 0)


def render_all(template: Any, request: Object) -> list[dict[str, str]]:
    """The text or the error of each rendering; one that is beyond a limit ends them all."""
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


def limit_process(cpu_seconds: float, memory_bytes: int) -> None:
    """Limit this process: the system ends it after so much more processor time, and refuses more memory, files and processes.

    macOS has no limit of memory; the parent process watches it.
    """
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    limits = {"AS": memory_bytes, "CORE": 0, "FSIZE": 0, "NOFILE": 0, "NPROC": 0}
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
    serve()
