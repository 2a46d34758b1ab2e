"""`ForkServer`: a process that forks for each request, so that a request does not wait for Python to start."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from errno import ECONNRESET
from pathlib import Path
from threading import Lock

# A script that gets out of its sandbox should find no secrets in its environment.
ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TZ", "LANG", "LC_ALL")
NUMBER = struct.Struct("i")  # as in chat_worker.py
ANSWER_SECONDS = 10  # in which the script forks, or ends; one that does not is killed


class ForkServer:
    """Runs a script in a separate process, which forks once for each request.

    The script is started by the first request, and by the next one after it has died or given no answer for `ANSWER_SECONDS`,
    as when it is stopped. Threads may share it. It ends with this process, and a fork of this process starts its own. The script reads a number from the socket that is its
    standard input, and writes one back. To 0, which comes with open files, it answers with the pid of a fork that has
    these files; to a pid, with the status of that process, which it ends.
    """

    def __init__(self, script: Path) -> None:
        self._script = script
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._leave)

    def fork(self, arguments: Sequence[str], files: Sequence[int]) -> int:
        """The pid of a new process that has these open files; `arguments` are those of a script that must be started.

        OSError when the process cannot be started.
        """
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                with suppress(OSError):  # of one that dies now, or does not answer
                    return self._ask(0, files)
            self._start(arguments)
            return self._ask(0, files)

    def end(self, pid: int) -> int:
        """End a process that `fork` started, and return its status, as in `Popen.returncode`; 1 if it is lost."""
        with self._lock, suppress(OSError):
            return self._ask(pid)
        return 1

    def close(self) -> None:
        """End the script and its forks."""
        if self._socket is not None:
            with suppress(OSError):  # of one that has ended
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
        if self._process is not None:
            try:
                self._process.wait(ANSWER_SECONDS)
            except subprocess.TimeoutExpired:
                self._kill()
        self._socket = self._process = None

    def _kill(self) -> None:
        """End a script that may be stopped, and its forks."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _start(self, arguments: Sequence[str]) -> None:
        self.close()
        self._socket, other = socket.socketpair()
        self._socket.settimeout(ANSWER_SECONDS)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(self._script), *arguments],
                stdin=other.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
                start_new_session=True,  # Ctrl-C in a terminal does not reach it
            )

    def _ask(self, number: int, files: Sequence[int] = ()) -> int:
        answer = b""
        try:
            if self._socket is not None:
                with suppress(OSError):
                    socket.send_fds(self._socket, [NUMBER.pack(number)], files)
                    answer = self._socket.recv(NUMBER.size)
        finally:
            if not answer:  # one that came later would be taken for the answer to the next request
                self._kill()
                self.close()
        if not answer:
            raise ConnectionResetError(ECONNRESET, "it ended")
        return int(NUMBER.unpack(answer)[0])

    def _leave(self) -> None:
        """Forget the script, in a fork of the process that started it."""
        if self._socket is not None:
            self._socket.close()
        self._lock = Lock()  # a thread of that process may hold the other
        self._socket = self._process = None
