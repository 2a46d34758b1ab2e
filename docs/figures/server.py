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

_running: list[subprocess.Popen[bytes]] = []


def start(*arguments: str, port: int = 8080) -> None:
    """Start `zoo serve` with these arguments, and wait until it is ready.

    ZooError where another program has the port, or where the server ends before it is ready.
    """
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", port)) == 0:
            raise ZooError(f"port {port} is taken: stop what listens there, this page's server needs it")
    command = ["timeout", str(SECONDS), sys.executable, "-m", "zoo", "serve", *arguments, "--port", str(port)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    _running.append(process)
    while process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health"):
                return
        except OSError:
            time.sleep(0.1)
    raise ZooError(f"`zoo serve {' '.join(arguments)} --port {port}` ended before it was ready")


def stop() -> None:
    """End it."""
    while _running:
        process = _running.pop()
        process.terminate()
        process.wait()


atexit.register(stop)
