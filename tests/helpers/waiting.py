"""Waiting for what must happen, on a machine that may be busy."""

import threading
import time
from concurrent.futures import Future
from functools import partial

PATIENCE = 240  # seconds after which a wait has failed: many times what it takes


def wait_until(true):
    """Wait until `true()`; it must become so."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it did not become true"
        time.sleep(0.005)


def in_background(function, *arguments):
    """Call a function in a thread; gives a function that waits for its value, or raises its error."""
    called = Future()

    def call():
        try:
            called.set_result(function(*arguments))
        except BaseException as error:
            called.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return partial(called.result, PATIENCE)
