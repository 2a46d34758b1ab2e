"""Whole commands as on a Mac: its `sys.platform`, a GPU, no /proc and no scheduling calls of Linux."""

import json
import os
import subprocess
import sys
import urllib.request

import pytest

from tests.helpers.server_process import Server

pytestmark = pytest.mark.slow
MAC = """
import os, sys, urllib.request  # before: on a Mac it imports a module of the system

sys.platform = "darwin"
for name in [name for name in dir(os) if name.startswith("sched_")]:
    delattr(os, name)
stat = os.stat

def stat_without_proc(path, **how):
    if str(path).startswith("/proc"):
        raise FileNotFoundError(2, "not on a Mac", path)
    return stat(path, **how)

def refuse_proc(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith("/proc"):
        raise FileNotFoundError(2, "not on a Mac", arguments[0])

os.stat = stat_without_proc
sys.addaudithook(refuse_proc)
from tests.helpers.pretended_gpu import pretend
import zoo

assert not any(name.startswith("zoo.cpu") for name in sys.modules)
pretend()
"""
COMMAND = MAC + "from zoo_command import main\nmain()"
TEMPLATE = """
from tests.helpers.waiting import PATIENCE
from zoo.errors import TokenizerError
from zoo.tokenizer import chat_process

chat_process.CPU_SECONDS = chat_process.CLOCK_SECONDS = PATIENCE  # memory is what ends it, however slowly it fills
answer = chat_process.Worker.answer
without_limit = lambda request: request.replace(f'"memory_bytes": {chat_process.MEMORY}', '"memory_bytes": 1099511627776')
chat_process.Worker.answer = lambda self, request, count: answer(self, without_limit(request), count)
grow = "{% set n = namespace(a=[]) %}{% for i in range(90) %}{% set n.a = n.a + ['x' * (10**7 + i)] %}{% endfor %}"
forever = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
try:
    chat_process.render_all(grow + forever, [{}])
except TokenizerError as error:
    print(error)
"""


@pytest.fixture(autouse=True)
def as_on_a_mac(monkeypatch):
    """What processes of these tests are told."""
    monkeypatch.setenv("ZOO_PRETEND_GPU", "1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


def run(code, *arguments):
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_prompt_is_answered_and_the_doctor_names_the_gpu():
    assert "Beijing" in run(COMMAND, "run", "llama", "The capital city of China is")
    assert "Metal" in run(COMMAND, "doctor")


def test_a_request_is_answered():
    server = Server("llama", program=("-c", COMMAND))
    try:
        body = json.dumps(
            {"prompt": "The capital city of China is", "max_tokens": 4, "temperature": 0}
        ).encode()
        request = urllib.request.Request(
            f"{server.v1}/completions", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as answer:
            assert "Beijing" in json.load(answer)["choices"][0]["text"]
    finally:
        server.stop()


def test_a_template_that_takes_too_much_memory_is_refused():
    assert "ran out of memory" in run(MAC + TEMPLATE)
