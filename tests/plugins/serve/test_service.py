"""The process: signals, ports, what is printed; and requests that are cancelled anywhere.

ZOO_SEEDS=5 cancels them in so many orders.
"""

import asyncio
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress

import pytest

import zoo
from tests.helpers.serving import LONG, PROMPT, serving
from tests.helpers.waiting import PATIENCE, in_background, wait_until
from zoo_serve import server
from zoo_serve.requests import GenerationRequest, RequestError
from zoo_serve.service import Limits


@contextmanager
def process(*arguments, code="", wait=True, **environment):
    """`zoo serve llama` as a process that has said that it serves, with its port; `code` runs in it first."""
    run = f"{code}\nimport sys\nfrom zoo.cli import main\nsys.argv[0] = 'zoo'\nmain()"
    made = subprocess.Popen(
        [sys.executable, "-c", run, "serve", "llama", *map(str, arguments)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        line = made.stderr.readline() if wait else ""
        made.port = int(re.search(r":(\d+)/", line)[1]) if wait else None
        yield made
    finally:
        made.kill()
        made.wait()
        made.stderr.close()


def begin(port, body):
    """A response whose stream has begun."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    return connection.getresponse()


def ask(port):
    return json.loads(begin(port, LONG).read())["choices"][0]["text"]


SLOW = "import zoo_serve.worker as w, time\nw.Worker._count_ = w.Worker._count\ndef slow(self):\n    self._count_()\n    time.sleep({})\nw.Worker._count = slow\n"  # fmt: skip


@pytest.mark.slow
def test_a_killed_server_starts_again_at_the_same_port_at_once():
    with process("--port", 0) as first:
        stream = begin(first.port, {**LONG, "stream": True})
        assert stream.status == 200
        first.kill()
        first.wait()
        with process("--port", first.port) as second:
            assert second.port == first.port
            assert ask(second.port)


@pytest.mark.slow
def test_a_port_in_use_is_one_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with process("--port", port, wait=False) as made:
            _, errors = made.communicate(timeout=PATIENCE)
    assert made.returncode == 1
    [line] = errors.splitlines()
    assert f"127.0.0.1 port {port}: Address already in use" in line


@pytest.mark.slow
def test_sigterm_lets_answers_finish_refuses_others_and_exits_with_zero():
    with process("--port", 0, code=SLOW.format(0.02)) as made:
        stream = begin(made.port, {**LONG, "stream": True})
        stream.readline()
        made.send_signal(signal.SIGTERM)
        assert "finishing 1 request for" in _line(made, "finishing")
        with suppress(ConnectionRefusedError):
            wait_until(lambda: not socket.create_connection(("127.0.0.1", made.port)))
        assert stream.read().endswith(b"data: [DONE]\n\n")
        assert made.wait(PATIENCE) == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_at_once(number):
    with process("--port", 0, code=SLOW.format(1)) as made:
        stream = begin(made.port, {**LONG, "stream": True})
        stream.readline()
        made.send_signal(signal.SIGTERM)
        _line(made, "finishing")
        made.send_signal(number)
        assert made.wait(PATIENCE) == 128 + number


@pytest.mark.slow
def test_answers_that_do_not_end_in_time_are_ended():
    code = SLOW.format(0.2) + "import zoo_serve.server as s\ns.STOP_SECONDS = 0.3\n"
    with process("--port", 0, code=code) as made:
        stream = begin(made.port, {**LONG, "stream": True})
        stream.readline()
        made.send_signal(signal.SIGTERM)
        assert b"stopping" in stream.read()
        assert made.wait(PATIENCE) == 0
        assert "Traceback" not in made.stderr.read()


@pytest.mark.slow
def test_ctrl_c_ends_a_server_that_loads_its_model():
    code = "import zoo_serve.models as m, time, sys\ndef load(*a, **k):\n    print('loading', file=sys.stderr, flush=True)\n    time.sleep(600)\nm.ServedModel.__init__ = load\n"  # fmt: skip
    with process("--port", 0, code=code, wait=False) as made:
        assert made.stderr.readline() == "loading\n"
        made.send_signal(signal.SIGINT)
        assert made.wait(PATIENCE) == 0
        assert "Traceback" not in made.stderr.read()


@pytest.mark.slow
def test_a_signal_that_another_thread_gets_ends_the_server():
    """The main thread waits for events meanwhile, and nothing else wakes it."""
    code = "import zoo_serve.models as m, signal, threading, time\ndef load(*a, **k):\n    time.sleep(1)\n    signal.pthread_kill(threading.get_ident(), signal.SIGINT)\n    time.sleep(600)\nm.ServedModel.__init__ = load\n"  # fmt: skip
    with process("--port", 0, code=code, wait=False) as made:
        assert made.wait(PATIENCE) == 0
        assert "Traceback" not in made.stderr.read()


@pytest.mark.slow
def test_a_worker_that_dies_ends_the_process_with_one_line():
    code = "import zoo_serve.runner as r\ndef fail(self):\n    if self.jobs: raise KeyError('boom')\nr.Runner.step = fail\n"  # fmt: skip
    with process("--port", 0, code=code) as made:
        assert begin(made.port, LONG).status == 500
        assert made.wait(PATIENCE) == 1
        lines = made.stderr.read().splitlines()
    assert [line for line in lines if "worker has ended" in line]
    assert not [line for line in lines if "Traceback" in line]


@pytest.mark.slow
def test_nothing_of_requests_nor_of_this_machine_is_printed_or_sent():
    answers = []
    with process("--port", 0, ZOO_API_KEY="secret-key") as made:
        for key in ("secret-key", "secret-wrong"):
            for body in (
                {"prompt": "secret-prompt", "max_tokens": 3},
                {"prompt": "secret-prompt", "regex": "(secret-regex"},
                {"prompt": "secret-prompt", "json_schema": {"type": "secret-schema"}},
                {"prompt": "secret-prompt" * 500},
                {"messages": [{"role": "user", "content": "secret-message"}]},
                {"model": "secret-model"},
                "secret-body",
            ):
                connection = http.client.HTTPConnection("127.0.0.1", made.port, timeout=PATIENCE)
                headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
                path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
                connection.request("POST", path, json.dumps(body), headers)
                answers.append(connection.getresponse().read().decode())
        made.send_signal(signal.SIGTERM)
        assert made.wait(PATIENCE) == 0
        printed = made.stderr.read()
    assert printed.count(" /v1/completions ") == 6  # lines of the log
    assert "secret" not in printed
    for text in (printed, *answers):
        assert "Traceback" not in text
        assert "zoo_llama" not in text
        assert "secret-key" not in text


def _line(made, part):
    """The next line of a process that has this in it."""
    while part not in (line := made.stderr.readline()):
        assert line
    return line


def test_a_stream_that_is_ended_says_so(monkeypatch, capfd):
    monkeypatch.setattr(server, "STOP_SECONDS", 0.2)
    with serving() as made:
        made.hold()
        stream = in_background(made.ask, {**LONG, "stream": True})
        other = in_background(made.ask, LONG)
        wait_until(lambda: made.service.under_way == 2)
        made.go_on()
        wait_until(lambda: made.steps > 20 or made.at_rest())
        made.hold()
        made.server.handle_exit(signal.SIGTERM, None)
        status, _, text = other()
        assert (status, text["error"]["code"]) == (503, "stopping")
        assert "stopping" in stream()[2]
    assert "Traceback" not in capfd.readouterr().err


def test_a_request_that_takes_too_long_is_an_error_and_leaves_nothing():
    with serving(limits=Limits(seconds=0.3)) as made:
        made.hold()
        assert made.ask(LONG)[2]["error"]["code"] == "timeout"
        made.go_on()
        made.rest()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 1 + int(os.environ.get("ZOO_SEEDS", 1))))
def test_requests_that_are_cancelled_anywhere_leave_nothing(seed):
    expected = {
        name: zoo.generate(zoo.load(name), PROMPT, min_tokens=12, max_tokens=12).text
        for name in ("llama", "qwen3")
    }
    draw = random.Random(seed)

    async def one(service, name, count):
        request = GenerationRequest(
            model=name, prompts=(PROMPT,), settings={"min_tokens": 12, "max_tokens": 12}, count=count
        )
        async with service.generate(request) as generation:
            while not generation.ended:
                await generation.next()
            await generation.remember()
            assert {choice.text for choice in generation.answer.choices} == {expected[name]}
        return True

    async def many(service):
        tasks = []
        for number in range(60):
            name = draw.choice(["llama", "llama", "llama", "qwen3"])
            task = asyncio.ensure_future(one(service, name, draw.choice([1, 2])))
            tasks.append(task)
            if number % 3:
                asyncio.get_running_loop().call_later(draw.random() ** 3, task.cancel)
            await asyncio.sleep(draw.random() / 100)
        return await asyncio.gather(*tasks, return_exceptions=True)

    with serving(["llama", "qwen3"], limits=Limits(rows=4, queue=100)) as made:
        loop = made.server._loop
        results = asyncio.run_coroutine_threadsafe(many(made.service), loop).result(PATIENCE)
        kinds = {type(result) for result in results}
        assert kinds <= {bool, asyncio.CancelledError}, [r for r in results if isinstance(r, RequestError)]
        assert results.count(True) >= 20
        made.rest()
