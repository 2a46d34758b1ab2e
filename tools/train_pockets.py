"""Train every embedded checkpoint again, from nothing: same data, same order, same budget for all on one corpus.

    python tools/train_pockets.py [NAME …]

Trains `cores` models at a time, one thread each: at this size a second thread makes a matrix product hardly
faster, and most of the time goes into elementwise work that has one thread only.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from zoo.cpu.blas import THREADS
from zoo.host.registry import default_registry


def pockets() -> dict[str, str]:
    """Each architecture with an embedded preset, and the folder it lies in."""
    numbers = {}
    for name, architecture in default_registry().architectures.items():
        preset = architecture.preset("pocket")
        if preset is not None and preset.folder is not None:
            numbers[name] = str(preset.folder)
    return numbers


def train(name: str, folder: str) -> subprocess.Popen[bytes]:
    """Start one training."""
    environment = os.environ | dict.fromkeys(THREADS, "1")
    command = [sys.executable, "-m", "zoo", "train", name, "--out", folder, "--overwrite", "--forget"]
    return subprocess.Popen(command, env=environment)


def measure(folder: str) -> int:
    """Write what the trained model knows beside it; the exit status."""
    command = [sys.executable, "-m", "zoo", "evaluate", folder, "--all", "--out", f"{folder}/accuracy.json"]
    return subprocess.run(command, check=False).returncode


def main(names: Sequence[str]) -> int:
    """Train the pockets named, or all; the number of those that failed."""
    waiting = [(name, folder) for name, folder in pockets().items() if not names or name in names]
    running: list[tuple[str, subprocess.Popen[bytes]]] = []
    failed = 0
    while waiting or running:
        while waiting and len(running) < (os.cpu_count() or 1):
            name, folder = waiting.pop(0)
            running.append((name, train(name, folder)))
        name, process = running.pop(0)
        if process.wait() or measure(pockets()[name]):
            print(f"{name}: training failed", file=sys.stderr)
            failed += 1
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
