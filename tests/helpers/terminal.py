"""A command of the zoo on a terminal of its own."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time


def _settle():
    """In the new process: the terminal is its own, and Ctrl-C is heard, also where these tests run in the background."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """A process whose input, output and error stream are one terminal; use it as a context.

    `code` is run by Python in place of `zoo ARGUMENTS…`.
    """

    def __init__(self, *arguments, code=None, columns=80, cwd=None, environment=None):
        self.leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, *(["-c", code] if code else ["-m", "zoo"]), *map(str, arguments)],
            stdin=follower,
            stdout=follower,
            stderr=follower,
            cwd=cwd,
            env={**kept, "TERM": "xterm", "HF_HUB_OFFLINE": "1", **(environment or {})},
            start_new_session=True,
            preexec_fn=_settle,
        )
        os.close(follower)
        self.seen = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.leader)

    def type(self, text):
        """Type a text; "\\n" is the enter key, "\\x03" Ctrl-C, "\\x04" Ctrl-D."""
        os.write(self.leader, text.encode())

    def until(self, text, seconds=60):
        """What appears up to and with `text`, which must come."""
        shown, end = "", time.monotonic() + seconds
        while text not in shown:
            ready, _, _ = select.select([self.leader], [], [], max(end - time.monotonic(), 0))
            piece = self._read() if ready else b""
            assert piece, f"waited for {text!r}, saw {shown!r}"
            shown += piece.decode("utf-8", "replace")
            self.seen += piece.decode("utf-8", "replace")
        return shown

    def end(self, seconds=60):
        """The exit status, and all that was shown since the last look."""
        shown, end = b"", time.monotonic() + seconds
        while True:
            ready, _, _ = select.select([self.leader], [], [], max(end - time.monotonic(), 0))
            assert ready, f"it does not end; saw {shown!r}"
            piece = self._read()
            if not piece:
                break
            shown += piece
        text = shown.decode("utf-8", "replace").replace("\r\n", "\n")
        self.seen += text
        return self.process.wait(timeout=seconds), text

    def _read(self):
        try:
            return os.read(self.leader, 65536)
        except OSError:  # the process has closed its end
            return b""
