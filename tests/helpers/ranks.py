"""Starts commands on several ranks, within a bounded time, and ends what they leave."""

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from tests.helpers import one_core
from tests.helpers.pretended_gpu import PRETENDED
from tests.helpers.waiting import PATIENCE, wait_until
from zoo.cpu.blas import THREADS

LAUNCHER = Path(sys.executable).with_name("mlx.launch")
ONE_THREAD = dict.fromkeys(THREADS, "1")
# Its `mpirun` is beside Python, and starts more ranks than there are cores, also for root.
FOR_MPIRUN = {
    "PATH": os.pathsep.join([str(LAUNCHER.parent), os.environ.get("PATH", os.defpath)]),
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    **dict.fromkeys(("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"), "1"),
}
RANK = re.compile(rb"(?:MLX_RANK|OMPI_COMM_WORLD_RANK)=(\d+)")


class Launched:
    """A run on `size` ranks. `wait` gives what it printed; as a context manager it ends with no process left.

    `backend` is one of MLX's that connects the ranks: "ring" or "mpi".
    """

    def __init__(self, size, *command, env=None, stdin="", cwd=None, backend="ring"):
        reader, self._stdin = os.pipe()  # stays open: a rank may read it
        os.write(self._stdin, stdin.encode())
        self.process = subprocess.Popen(
            [
                LAUNCHER,
                "-n",
                str(size),
                "-p",
                str(free_ports(size)),
                "--backend",
                backend,
                "--",
                sys.executable,
                *map(str, command),
            ],
            stdin=reader,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            cwd=cwd,
            env={**os.environ, **ONE_THREAD, **FOR_MPIRUN, "HF_HUB_OFFLINE": "1", **(env or {})},
            start_new_session=True,
            preexec_fn=_settle,
        )
        os.close(reader)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for name in ("SIGCONT", "SIGKILL"):
            try:
                os.killpg(self.process.pid, getattr(signal, name))
            except ProcessLookupError:
                break
        self.process.communicate()
        os.close(self._stdin)

    def type(self, text):
        """Write to the standard input of all ranks."""
        os.write(self._stdin, text.encode())

    def processes(self):
        """The process of each rank that lives, by its number. The guardians of ranks are not among them."""
        found = {}
        for process in self.living():
            with suppress(OSError):
                values = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
                if rank := next((match[1] for value in values if (match := RANK.fullmatch(value))), None):
                    found[int(rank)] = process
        return found

    def living(self):
        """The processes of this run that live."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                own = entry.name.isdecimal() and os.getpgid(int(entry.name)) == self.process.pid
                if own and b"\nState:\tZ" not in (entry / "status").read_bytes():
                    found.append(int(entry.name))
        return found

    def wait(self, timeout=PATIENCE):
        """What it printed, as a `CompletedProcess`; TimeoutExpired after so many seconds. No process is left."""
        output, errors = self.process.communicate(timeout=timeout)
        wait_until(lambda: not self.living())
        return subprocess.CompletedProcess(self.process.args, self.process.returncode, output, errors)


def launch(size, *command, env=None, stdin="", cwd=None, timeout=PATIENCE, backend="ring"):
    """Run `python COMMAND…` on `size` ranks: a `CompletedProcess` with the output of all. No process is left."""
    with Launched(size, *command, env=env, stdin=stdin, cwd=cwd, backend=backend) as run:
        return run.wait(timeout)


def run_ranks(size, *command, timeout=900):
    """Run `python COMMAND…` on `size` ranks, as `launch` does, but without MLX's launcher.

    The launcher asks all the time whether a rank takes input, which takes a core from them.
    """
    if PRETENDED:
        import pytest

        pytest.skip("ranks are processes of their own, which pretend no GPU")
    first, started = free_ports(size), []
    with tempfile.TemporaryDirectory() as folder:
        hosts = Path(folder, "hosts.json")
        hosts.write_text(json.dumps([[f"127.0.0.1:{first + rank}"] for rank in range(size)]))
        shared = {**os.environ, **ONE_THREAD, "HF_HUB_OFFLINE": "1", "MLX_HOSTFILE": str(hosts)}
        try:
            for rank in range(size):
                one = subprocess.Popen(
                    [sys.executable, *map(str, command)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    encoding="utf-8",
                    env=shared | {"MLX_RANK": str(rank)},
                    preexec_fn=one_core.use_all_cores,
                )
                started.append(one)
            printed = [one.communicate(timeout=timeout) for one in started]
        finally:
            for one in started:
                one.kill()
    output, errors = map("".join, zip(*printed, strict=True))
    failed = max(abs(one.returncode) for one in started)
    return subprocess.CompletedProcess(command, failed, output, errors)


def _settle():
    """In the launcher's process: ranks take turns on all cores, and hear Ctrl-C, which is ignored in the background."""
    one_core.use_all_cores()
    signal.signal(signal.SIGINT, signal.default_int_handler)


def zoo_lines(finished):
    """The lines of the error stream that the zoo printed: those that the launcher adds begin with an escape."""
    return [line[line.index("zoo: ") :] for line in finished.stderr.splitlines() if "zoo: " in line]


def exit_statuses(finished):
    """The exit status of each rank that did not end well, as the launcher says it.

    Where the launcher ended a rank since another had ended before, that is "killed".
    """
    # Its threads write at the same time, but each of these in one piece.
    found = re.findall(r"Node with rank (\d+) (?:exited with code (-?\d+)|was killed)", finished.stderr)
    return {int(rank): int(status) if status else "killed" for rank, status in found}


def free_ports(size):
    """The first of `size` consecutive ports that are free, as is the one before it."""
    while True:
        first = random.randrange(20000, 30000)
        try:
            for port in range(first - 1, first + size):
                with socket.create_server(("127.0.0.1", port)):
                    pass
            return first
        except OSError:
            continue
