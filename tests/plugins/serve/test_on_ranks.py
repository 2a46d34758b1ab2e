"""A server on several ranks answers as one process does, and ends as one."""

import json
import os
import signal
import socket
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

import zoo
from tests.helpers.ranks import Launched, exit_statuses, launch, zoo_lines
from tests.helpers.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.slow
PROMPT = "The capital city of China is"
# Goes on until its client, or a rank, is gone: the end token is never drawn.
ENDLESS = {
    "prompt": PROMPT,
    "max_tokens": 100000,
    "max_kv_size": 64,
    "logit_bias": {"0": -100},
    "temperature": 1.5,
}
COUNTRIES = ("China", "France", "Italy", "Japan")


class Asked:
    """A server on two ranks, and the JSON of its answers."""

    def __init__(self, run, port):
        self.run, self.url = run, f"http://127.0.0.1:{port}"

    def __call__(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def text(self, **body):
        status, answer = self("/v1/completions", {"prompt": PROMPT, "max_tokens": 8} | body)
        assert status == 200, answer
        return [choice["text"] for choice in answer["choices"]]

    def ready(self):
        try:
            return self("/health")[0] == 200
        except OSError:
            return False


@contextmanager
def served(*options):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Launched(2, "-m", "zoo", "serve", "llama", "--port", port, *options) as run:
        ask = Asked(run, port)
        wait_until(ask.ready)
        yield ask


def test_ranks_serve_what_one_process_generates_and_end_together():
    loaded = zoo.load("llama")

    def alone(prompt=PROMPT, **settings):
        return zoo.generate(loaded, prompt, max_tokens=8, **settings).text

    with served() as ask:
        assert ask.text() == [alone()]
        assert ask.text(temperature=1, seed=3, n=2) == [alone(temperature=1, seed=seed) for seed in (3, 4)]
        assert ask.text(beams=3) == [alone(beams=3)]
        assert ask.text(penalty_alpha=0.5, top_k=4) == [alone(penalty_alpha=0.5, top_k=4)]
        assert len(ask.text(temperature=1)) == 1  # the seed is drawn by rank 0
        assert ask("/v1/completions", {"prompt": PROMPT, "top_p": 7})[0] == 400

        status, answer = ask("/v1/embeddings", {"input": ["one text", "another"]})
        assert status == 200
        expected = zoo.embed(loaded, ["one text", "another"]).tolist()
        for found, vector in zip(answer["data"], expected, strict=True):
            assert found["embedding"] == pytest.approx(vector, abs=1e-5)

        leaving = socket.create_connection(("127.0.0.1", int(ask.url.rpartition(":")[2])))
        body = json.dumps(ENDLESS | {"stream": True}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        leaving.sendall(head.encode() + body)
        assert leaving.recv(100)  # it runs
        leaving.close()

        texts = {}

        def one(country):
            texts[country] = ask.text(prompt=f"The capital city of {country} is")

        threads = [threading.Thread(target=one, args=(country,)) for country in COUNTRIES]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert texts == {country: [alone(f"The capital city of {country} is")] for country in COUNTRIES}

        os.kill(ask.run.processes()[0], signal.SIGTERM)
        done = ask.run.wait()
    assert exit_statuses(done) == {}, done.stderr
    assert not any("error" in line for line in zoo_lines(done)), done.stderr


def test_a_lost_rank_gives_503_and_ends_the_server_with_one_line():
    with served() as ask:
        found = []
        thread = threading.Thread(target=lambda: found.append(ask("/v1/completions", ENDLESS)))
        thread.start()
        wait_until(lambda: b"zoo_running 1.0" in urllib.request.urlopen(ask.url + "/metrics").read())
        os.kill(ask.run.processes()[1], signal.SIGKILL)
        thread.join()
        done = ask.run.wait()
    [(status, answer)] = found
    assert (status, answer["error"]["code"]) == (503, "failed")
    assert zoo_lines(done) == ["zoo: error: rank 1 ended unexpectedly; all ranks end"]
    assert set(exit_statuses(done)) == {0, 1}


def test_several_ranks_serve_one_model():
    done = launch(2, "-m", "zoo", "serve", "llama", "gpt2")
    assert any("several ranks serve one SOURCE" in line for line in zoo_lines(done))
    assert set(exit_statuses(done)) == {0, 1}
