"""Calls of the worker, which come in pieces."""

import queue
from types import SimpleNamespace

from tests.helpers.waiting import PATIENCE
from zoo_serve.models import ModelTable
from zoo_serve.requests import RequestError
from zoo_serve.runner import Job
from zoo_serve.worker import Worker


def delivered(calls, count):
    """The first pieces and errors that a worker delivers of calls that begin together."""
    worker, found = Worker(ModelTable([]), rows=1), queue.SimpleQueue()
    for name, call in calls.items():

        def deliver(item, name=name):
            if item is not None:
                found.put((name, item))

        worker.submit(Job(SimpleNamespace(loaded=None), deliver, call=call))
    worker.start()
    try:
        return [found.get(timeout=PATIENCE) for _ in range(count)]
    finally:
        worker.stop()


def test_a_long_call_lets_others_run_between_its_pieces():
    calls = {"long": lambda loaded: iter(range(9)), "short": lambda loaded: iter("ab")}
    assert delivered(calls, 7) == [
        *(("long", [(0, 0)]), ("short", [(0, "a")])),
        *(("long", [(0, 1)]), ("short", [(0, "b")])),
        *(("long", [(0, 2)]), ("short", [(0, None)]), ("long", [(0, 3)])),
    ]


def test_a_call_that_fails_ends_alone():
    def failing(loaded):
        yield "first"
        raise RequestError(400, "No.")

    found = delivered({"bad": failing, "good": lambda loaded: iter("ab")}, 4)
    good = [item for name, item in found if name == "good"]
    assert good == [[(0, "a")], [(0, "b")]]
    bad = [item for name, item in found if name == "bad"]
    assert bad[0] == [(0, "first")]
    assert isinstance(bad[1], RequestError)
    assert str(bad[1]) == "No."
