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

# What a template may use.
CPU_SECONDS = 5  # of processor time
CLOCK_SECONDS = 60  # by the clock, which runs on while other programs have the processor
MEMORY = 2**29  # bytes
OUTPUT = 4 * 2**20  # bytes of UTF-8 that it writes

_POLL = 0.1  # seconds between two checks of the child's memory: a fast one fills gigabytes in a second


def render_chat(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    special_tokens: Mapping[str, str],
    add_generation_prompt: bool = True,
    **kwargs: Any,
) -> str:
    """The prompt that a chat template makes of messages.

    Each message has a "role" and a "content", both strings, and may have more keys; one with "tool_calls" may lack the
    content. The template sees the `special_tokens` by their names ("bos_token", ...) and the `kwargs` by theirs (such as
    `tools` or `enable_thinking`). `add_generation_prompt` ends the text where the model's answer begins. The template
    writes its own special tokens: encode the result with `special_tokens=False`.

    TokenizerError, starting with "chat template:", for what the template refuses, for an error in it, and where it uses
    more than `CPU_SECONDS`, `CLOCK_SECONDS`, `MEMORY` or `OUTPUT`.
    """
    variables = {
        **special_tokens,
        "tools": None,
        "documents": None,
        **kwargs,
        "messages": [_message(message, number) for number, message in enumerate(messages, 1)],
        "add_generation_prompt": add_generation_prompt,
    }
    request = {
        "template": template,
        "variables": variables,
        "path": list(dict.fromkeys(map(_library_folder, ("jinja2", "markupsafe")))),
        "cpu_seconds": CPU_SECONDS,
        "memory_bytes": MEMORY,
        "output_bytes": OUTPUT,
    }
    try:
        request_text = json.dumps(request)
    except (TypeError, ValueError, RecursionError) as error:
        raise TokenizerError(f"chat template: a message or argument is not plain data ({error})") from None
    answer = _render_in_process(request_text.encode("ascii"))
    if "error" in answer:
        raise TokenizerError(f"chat template: {answer['error']}")
    return answer["text"]


def _message(message: Mapping[str, Any], number: int) -> dict[str, Any]:
    """A message with string role and content and without keys of value None, as templates expect.

    One with tool calls may lack the content. Their arguments, JSON text in OpenAI's interface, become objects.
    """
    where = f"chat template: message {number}"
    if not isinstance(message, Mapping):
        raise TokenizerError(f"{where} must be an object with a role and a content")
    message = {key: value for key, value in message.items() if value is not None}
    if message.get("tool_calls"):
        message.setdefault("content", "")
        message["tool_calls"] = _calls(message["tool_calls"], where)
    for key in ("role", "content"):
        if not isinstance(message.get(key), str):
            kind = "missing" if key not in message else f"of type {type(message[key]).__name__}"
            raise TokenizerError(f"{where}: {key} must be a string, it is {kind}")
    return message


def _calls(calls: Any, where: str) -> list[dict[str, Any]]:
    """The tool calls of a message, their arguments as objects; TokenizerError for malformed ones."""
    made = []
    for call in calls if isinstance(calls, list | tuple) else [calls]:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            why = "each of tool_calls must be an object with a function, which has a name and arguments"
            raise TokenizerError(f"{where}: {why}")
        arguments = function.get("arguments", {})
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except ValueError as error:
                why = f"the arguments of {function['name']} are not JSON ({error})"
                raise TokenizerError(f"{where}: {why}") from None
        if not isinstance(arguments, Mapping):
            raise TokenizerError(f"{where}: the arguments of {function['name']} must be an object")
        made.append({**call, "function": {**function, "arguments": arguments}})
    return made


def _library_folder(name: str) -> str:
    """The folder in which jinja2 or its dependency is installed."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise TokenizerError(f"chat template: needs the {name} package (pip install jinja2)")
    return str(Path(spec.origin).parent.parent)


def _render_in_process(request: bytes) -> dict[str, str]:
    """The answer of the rendering process: {"text": ...} or {"error": ...}."""
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
    if isinstance(answer, dict) and any(isinstance(answer.get(key), str) for key in ("text", "error")):
        return answer
    if child.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return {"error": f"took more than {CPU_SECONDS:g} s of processor time"}
    return {"error": f"its process ended without an answer (status {child.returncode})"}


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
