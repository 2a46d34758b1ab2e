"""A server that runs while a page is built, so that the page's commands can ask it."""

from __future__ import annotations

import atexit
import socket
import subprocess
import sys
import time
import urllib.request

from zoo.errors import ZooError

SECONDS = 300  # after which it ends by itself
SHOWN = "127.0.0.1:8080"  # the address that pages show: the default of `zoo serve`

_running: dict[str, subprocess.Popen[bytes]] = {}  # by address


def start(*arguments: str) -> None:
    """Start `zoo serve` with these arguments at a free port, and wait until it is ready.

    ZooError where the server ends before it is ready.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "{}:{}".format(*free.getsockname())
    port = address.partition(":")[2]
    command = ["timeout", str(SECONDS), sys.executable, "-m", "zoo", "serve", *arguments, "--port", port]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    _running[address] = process
    while process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://{address}/health"):
                return
        except OSError:
            time.sleep(0.1)
    raise ZooError(f"`zoo serve {' '.join(arguments)}` ended before it was ready")


def to_running(line: str) -> str:
    """A command of a page, with the running server's address for the one that pages show."""
    return line.replace(SHOWN, next(iter(_running), SHOWN))


def to_shown(text: str) -> str:
    """What a command printed, with the address that pages show for the running server's."""
    for address in _running:
        text = text.replace(address, SHOWN)
    return text


def stop() -> None:
    """End it."""
    while _running:
        _, process = _running.popitem()
        process.terminate()
        process.wait()


atexit.register(stop)
