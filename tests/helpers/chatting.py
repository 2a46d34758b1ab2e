"""A conversation on a terminal of its own, driven key by key."""

import os
import re
import signal
import sys

import pexpect

from tests.helpers.waiting import PATIENCE

CONTROL = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|[=>])")
BEGINS, ENDS = "\x1b[?2004h", "\x1b[?2004l"  # the line editor takes pasted text, and no longer does


def plain(text):
    """A terminal's text without what moves the cursor or colours it."""
    return CONTROL.sub("", text).replace("\r", "")


def _hear():
    """In the new process: Ctrl-C is heard, also where these tests run in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Chat:
    """`zoo ARGUMENTS…` at its first prompt, or Python running `code`; use it as a context. `began` is what it said."""

    def __init__(self, *arguments, code=None, cwd):
        self.child = pexpect.spawn(
            sys.executable,
            [*(["-c", code] if code else ["-m", "zoo"]), *map(str, arguments)],
            cwd=cwd,
            env={
                **{name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")},
                **{"TERM": "xterm", "HF_HUB_OFFLINE": "1", "PROMPT_TOOLKIT_NO_CPR": "1"},
                "XDG_STATE_HOME": str(cwd / "state"),
            },
            encoding="utf-8",
            dimensions=(24, 100),
            timeout=PATIENCE,
            preexec_fn=_hear,
        )
        self.child.delaybeforesend = None
        self.raw = ""  # of the last answer, with its control sequences
        self.child.expect_exact(BEGINS)
        self.began = plain(self.child.before)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.close(force=True)

    def type(self, keys):
        """Press keys; "\\r" is the enter key, "\\x03" Ctrl-C, "\\x04" Ctrl-D."""
        self.child.send(keys)

    def paste(self, text):
        """Paste a text, as a terminal does where that is asked for."""
        self.child.send(f"\x1b[200~{text}\x1b[201~")

    def until(self, text):
        """Wait for a text."""
        self.child.expect_exact(text)

    def told(self):
        """What comes until the next prompt."""
        self.child.expect_exact(BEGINS)
        self.raw = self.child.before.rpartition(ENDS)[2]
        return plain(self.raw)

    def ask(self, line):
        """What comes after a line and before the next prompt."""
        self.type(f"{line}\r")
        return self.told()

    def end(self, keys):
        """The exit status after these last keys."""
        self.type(keys)
        self.child.expect(pexpect.EOF)
        self.child.close()
        return self.child.exitstatus
