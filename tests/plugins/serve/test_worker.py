"""The worker: what fails ends alone, models take turns, caches fit in memory, and idleness costs nothing."""

import gc
import queue
import threading
import time
import weakref
from importlib import import_module
from types import SimpleNamespace

import pytest

import zoo
from tests.helpers.serving import LONG, PROMPT, alone, serving
from tests.helpers.waiting import in_background, wait_until
from zoo import rank_watch, runtime
from zoo.cache import CachePolicy
from zoo.errors import DoesNotFit, RankError, ZooError
from zoo.runtime import ranks
from zoo_serve import models
from zoo_serve.models import ModelTable
from zoo_serve.ranks import Leader
from zoo_serve.requests import RequestError
from zoo_serve.service import Limits
from zoo_serve.worker import Worker, memory_for_caches

pytestmark = pytest.mark.slow

MODELS = ("llama", "qwen3")


def test_a_worker_that_dies_ends_all_requests_at_once_and_the_server_with_an_error():
    with serving(limits=Limits(rows=1)) as made:
        made.hold()
        others = [in_background(made.ask, LONG) for _ in range(3)]
        wait_until(lambda: made.service.under_way == 3)

        def fail():
            raise KeyError("a secret")

        made.worker._count = fail
        made.go_on()
        assert {(other()[0], other()[2]["error"]["code"]) for other in others} == {(500, "failed")}
        wait_until(lambda: not made.thread.is_alive())
        assert made.service.state == "failed"
        assert made.service.under_way == 0
        assert isinstance(made.server.problem, zoo.ZooError)
        assert "worker has ended" in str(made.server.problem)


@pytest.mark.parametrize("where", ["an operation", "the engine"])
def test_a_lost_rank_has_the_answer_of_the_watch(where, monkeypatch):
    """MLX and the watch notice a lost rank at about the same time, in different threads."""
    message, answer = "[ring] connection to a peer was lost", RequestError(503, "lost", code="failed")

    def fail(*operation):
        raise RuntimeError(message)

    with serving() as made:
        [model] = made.table.served.values()
        made.worker.runner = Leader(made.table)
        monkeypatch.setattr(
            rank_watch,
            "wait_for_watch",
            lambda found: made.worker.fail(RankError("a rank is lost"), answer) if found == message else None,
        )
        if where == "the engine":
            model.engine.step = fail
        else:
            monkeypatch.setattr(ranks, "shared", fail)
        status, _, found = made.ask(LONG)
    assert (status, found["error"]["message"]) == (503, "lost")


def test_requests_after_the_worker_died_are_refused():
    with serving() as made:
        made.server.fail = lambda error: None  # so that the server still listens

        def fail():
            raise KeyError("a secret")

        made.worker._count = fail
        made.worker.wake()
        wait_until(lambda: made.worker.failed)
        assert made.ask(method="GET", path="/health")[2] == {"status": "failed"}
        assert made.ask(LONG)[0] == 503


def test_an_error_of_the_engine_ends_its_requests_alone():
    with serving() as made:
        [model] = made.table.served.values()

        def fail():
            raise RuntimeError("a secret")

        model.engine.step = fail
        status, _, answer = made.ask(LONG)
        assert (status, answer["error"]["code"]) == (500, "internal_error")
        assert "secret" not in str(answer)
        assert made.text() == alone().text
        made.rest()


@pytest.mark.parametrize(
    ("error", "most"), [(KeyError("a secret"), 1), (DoesNotFit("the model does not fit"), 2)]
)
def test_a_model_that_cannot_be_loaded_fails_its_requests_alone(capfd, error, most):
    def load(name):
        if name == "qwen3":
            raise error
        return zoo.load(name)

    with serving(MODELS, most=most, load=load) as made:
        status, _, answer = made.ask({**LONG, "model": "qwen3"})
        assert (status, answer["error"]["code"]) == (503, "not_loaded")
        assert made.text() == alone().text
        made.rest()
    printed, message = capfd.readouterr().err, answer["error"]["message"]
    assert "secret" not in printed + message
    assert (f"cannot be loaded: {error}" in message) == isinstance(error, ZooError) == (str(error) in printed)


def test_models_take_turns_and_the_old_one_is_freed_before_the_new_one_is_read():
    alive, most = [], []

    def load(name):
        most.append(sum(model() is not None for model in alive))
        loaded = zoo.load(name)
        alive.append(weakref.ref(loaded.model))
        return loaded

    with serving(["llama", "qwen3"], load=load) as made:
        others = [
            (name, in_background(made.text, {**LONG, "model": name, "stream": False}))
            for _ in range(4)
            for name in MODELS
        ]
        assert all(other() == alone(model=name).text for name, other in others)
        made.rest()
    assert len(most) > 2
    assert set(most) == {0}


def test_a_request_cancelled_while_it_waits_for_a_model_loads_none():
    loads = []

    def load(name):
        loads.append(name)
        return zoo.load(name)

    with serving(["llama", "qwen3"], load=load) as made:
        made.hold()
        other = in_background(made.text)
        wait_until(lambda: made.service.under_way == 1)
        connection = made.send({**LONG, "model": "qwen3"})
        wait_until(lambda: made.service.under_way == 2)
        third = in_background(made.text)
        wait_until(lambda: made.service.under_way == 3)
        connection.close()
        wait_until(lambda: made.service.under_way == 2)
        made.go_on()
        assert other() == third() == alone().text
        made.rest()
        assert loads == ["llama"]


def test_a_model_that_nobody_uses_is_freed_and_loaded_again():
    with serving(unload_after=0.05) as made:
        model = weakref.ref(next(iter(made.table.served.values())).loaded.model)
        wait_until(lambda: not made.table.served)
        gc.collect()
        assert model() is None
        assert made.text() == alone().text


def test_a_model_that_something_still_holds_is_waited_for_so_many_seconds(monkeypatch):
    # Where a process has many objects, a collection takes long: by this clock, half a second.
    clock, collections = [0.0], []

    def advance(seconds):
        clock[0] += seconds

    def collect():
        collections.append(0)
        advance(0.5)

    monkeypatch.setattr(models, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=advance))
    monkeypatch.setattr(models, "gc", SimpleNamespace(collect=collect))
    table = ModelTable([])
    held = SimpleNamespace(loaded=SimpleNamespace(model=zoo.load("llama").model))
    table.served["llama"] = held
    assert table.drop_oldest()
    table.free_memory()
    assert len(collections) == 4  # within two seconds
    table.free_memory()
    assert len(collections) == 4  # it is given up


def test_a_model_for_which_there_is_no_memory_takes_the_place_of_one_that_nobody_uses():
    def load(name):
        if name == "qwen3" and made.table.served:
            raise DoesNotFit("the model does not fit")
        return zoo.load(name)

    with serving(MODELS, most=2, load=load) as made:
        assert made.text({**LONG, "model": "qwen3"}) == alone(model="qwen3").text
        assert list(made.table.served) == ["qwen3"]
        made.rest()


def test_what_can_never_fit_is_refused_and_what_fits_later_waits(monkeypatch):
    with serving() as made:
        [model] = made.table.served.values()
        from zoo_serve import worker

        one = model.cache_bytes(7 + 60, CachePolicy())
        monkeypatch.setattr(worker, "memory_for_caches", lambda models: 3 * one)
        most = []

        def after_step(step=made.worker._after_step):
            most.append(sum(job.nbytes for job in made.worker.runner.jobs))
            step()

        made.worker._after_step = after_step
        assert made.ask({**LONG, "n": 4})[2]["error"]["code"] == "insufficient_memory"
        assert made.ask({**LONG, "beams": 4, "min_tokens": None})[2]["error"]["code"] == "insufficient_memory"
        assert made.ask({**LONG, "n": 4, "max_kv_size": 16})[0] == 200
        others = [in_background(made.text) for _ in range(8)]
        assert [other() for other in others] == [alone().text] * 8
        assert one < max(most) <= 3 * one
        made.rest()


def test_the_prompt_caches_of_all_models_share_one_budget(monkeypatch):
    monkeypatch.setattr(runtime, "usable_memory", lambda: 2**34)
    for given, budget in ((None, 2**32), (2**20, 2**20)):
        with serving(MODELS, most=8, prompt_cache=given) as made:
            assert made.text({**LONG, "model": "qwen3"}) == alone(model="qwen3").text
            models = list(made.table.served.values())
            assert [model.prompt_cache.budget for model in models] == [budget // 8] * 2
            assert memory_for_caches(models * 4) > 2**33


class Inbox:
    """Messages that come so many seconds one after the other, by a clock that only waiting for them advances."""

    def __init__(self, messages):
        self.messages, self.now = messages, 0.0

    def get(self, block=True, timeout=None):
        seconds, message = self.messages[0]
        waited = seconds if timeout is None else min(seconds, timeout)
        self.now += waited
        self.messages[0] = (seconds - waited, message)
        if seconds > waited:
            raise queue.Empty
        return self.messages.pop(0)[1]

    def get_nowait(self):
        return self.get(timeout=0)


@pytest.mark.parametrize(
    ("rows", "arrivals", "read_together"),
    [
        (32, [0.02] * 5, 5),  # all together take longer than one may
        (32, [0.02, 0.02, 0.04, 0.01], 2),  # the third comes too late
        (3, [0.02] * 5, 3),  # there are no more rows
        (32, [0.01, "cancelled", 0.02, 0.01], 1),  # what is no request does not prolong the wait
    ],
)
def test_an_idle_worker_waits_for_requests_that_come_one_after_the_other(
    rows, arrivals, read_together, monkeypatch
):
    worker = Worker(ModelTable([]), rows=rows, prompt_cache=0)

    def arrive():
        worker.arriving -= 1
        worker._waiting.append("a request")

    messages = [(0.02, lambda: None) if seconds == "cancelled" else (seconds, arrive) for seconds in arrivals]
    worker.arriving = sum(message is arrive for _, message in messages)
    worker._inbox = inbox = Inbox([*messages, (1000, arrive)])
    monkeypatch.setattr("zoo_serve.worker.time", SimpleNamespace(monotonic=lambda: inbox.now))
    worker._receive()
    assert len(worker._waiting) == read_together


def test_an_idle_server_does_not_wake():
    with serving() as made:
        made.text()
        made.rest()
        if not hasattr(made.server._loop, "_selector"):
            pytest.skip("uvloop is installed, whose waking cannot be counted")
        selector, woken = made.server._loop._selector, []
        select = selector.select

        def counted(timeout=None):
            woken.append(timeout)
            return select(timeout)

        selector.select = counted
        made.server._loop.call_soon_threadsafe(lambda: None)
        time.sleep(0.1)
        before, steps = len(woken), made.steps
        time.sleep(0.5)
        assert (len(woken), made.steps) == (before, steps)


def test_grammars_are_compiled_before_the_worker_sees_them(monkeypatch):
    module = import_module("zoo.generation.grammar.token_mask")
    compiled, threads = module._compiled, []

    def recorded(library, lark):
        before = compiled.cache_info().misses
        made = compiled(library, lark)
        if compiled.cache_info().misses > before:
            threads.append(threading.current_thread().name.partition("_")[0])
        return made

    monkeypatch.setattr(module, "_compiled", recorded)
    with serving() as made:
        body = {"prompt": PROMPT, "max_tokens": 40}
        assert made.text({**body, "regex": "(yes|no) [0-9]{3}"})[:3] in ("yes", "no ")
        schema = {"type": "object", "properties": {"a": {"enum": ["b"]}}, "required": ["a"]}
        assert made.text({**body, "json_schema": schema})[0] == "{"
        assert threads == ["prompts", "prompts"]
        status, _, answer = made.ask({**body, "json_schema": {"type": "array", "contains": {}}})
        assert (status, answer["error"]["param"]) == (400, None)
        assert "contains" in answer["error"]["message"]
