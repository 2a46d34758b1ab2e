"""Commands as several ranks on this machine, started by `mlx.launch`."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

LAUNCH = Path(sys.executable).with_name("mlx.launch")


def launch(n, *command, env=None, timeout=600):
    """Run a command as `n` ranks of one thread each, and give the launcher's exit, output and errors.

    After `timeout` seconds all its processes are killed, and TimeoutExpired is raised.
    """
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        **(env or {}),
    }
    arguments = [LAUNCH, "-n", n, "--starting-port", free_ports(n), "--", *command]
    reader, writer = os.pipe()  # the launcher reads its input again and again where that has ended
    process = subprocess.Popen(
        list(map(str, arguments)),
        stdin=reader,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=timeout)
    finally:
        os.close(reader)
        os.close(writer)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def free_ports(n):
    """The first of `n` ports in a row that nothing listens on."""
    while True:
        with socket.socket() as first:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                for offset in range(1, n):
                    with socket.socket() as other:
                        other.bind(("127.0.0.1", port + offset))
            except (OSError, OverflowError):
                continue
        return port
