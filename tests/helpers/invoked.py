"""The command `zoo` within this process: what it prints and its exit status, without the start of a new Python."""

import contextlib
import gc
import io
import os
import sys
import traceback
import warnings
from subprocess import CompletedProcess
from unittest import mock

from zoo.cli import cli, main, program


def stream(content=b""):
    """A text stream that is no terminal, over bytes, as a pipe's is."""
    return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", errors="strict", newline="\n")


@contextlib.contextmanager
def process(folder, arguments, stdin, environment):
    """The state of a new process: its streams, arguments, folder, environment and warnings."""
    streams = dict(
        stdin=stream(stdin.encode("utf-8")), stdout=stream(), stderr=stream(), argv=["zoo", *arguments]
    )
    hub = sys.modules.get("huggingface_hub.constants")
    before, showwarning = os.getcwd(), warnings.showwarning
    with contextlib.ExitStack() as state:
        state.enter_context(mock.patch.multiple(sys, **streams))
        state.enter_context(mock.patch.dict(os.environ, {"HF_HUB_OFFLINE": "1", **environment}))
        if hub is not None:
            state.enter_context(mock.patch.object(hub, "HF_HUB_OFFLINE", True))
        state.enter_context(warnings.catch_warnings())
        warnings.resetwarnings()
        warnings.onceregistry.clear()
        state.callback(setattr, warnings, "showwarning", showwarning)
        state.enter_context(mock.patch.object(program, "listen"))  # Ctrl-C is pytest's
        state.enter_context(mock.patch.object(gc, "freeze"))
        cli.running = ()
        os.chdir(folder)
        state.callback(os.chdir, before)
        yield streams


def invoke(folder, arguments, stdin="", environment=None):
    """The finished `zoo …` with these arguments, called in `folder`."""
    with process(folder, arguments, stdin, environment or {}) as streams:
        status = 0
        try:
            main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:  # `--debug` lets an error through: Python prints it
            traceback.print_exc()
            status = 1
        said = [streams[name] for name in ("stdout", "stderr")]
        for one in said:
            one.flush()
        texts = [one.buffer.getvalue().decode("utf-8") for one in said]
    return CompletedProcess(["zoo", *arguments], status, *texts)
