"""A server that runs while a page is built, so that the page's commands can ask it."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request

SECONDS = 300  # after which it ends by itself

_running: list[subprocess.Popen[bytes]] = []


def start(*arguments: str, port: int = 8080) -> None:
    """Start `zoo serve` with these arguments, and wait until it is ready."""
    command = ["timeout", str(SECONDS), sys.executable, "-m", "zoo", "serve", *arguments, "--port", str(port)]
    _running.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
    for _ in range(10 * SECONDS):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health"):
                return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError("zoo serve was not ready in time")


def stop() -> None:
    """End it."""
    while _running:
        process = _running.pop()
        process.terminate()
        process.wait()
