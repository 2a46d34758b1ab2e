"""A fork server forks for each request, and neither it nor a fork outlives the process that asks."""

import os
import signal
from pathlib import Path

import pytest

from tests.helpers.waiting import PATIENCE
from zoo.tokenizer import chat_process, fork_server
from zoo.tokenizer.fork_server import ForkServer

WAITING = "import runpy, time\nrunpy.run_path({!r})['serve'](lambda request: time.sleep(600))"


@pytest.fixture
def server():
    server = ForkServer(Path(chat_process.__file__).with_name("chat_worker.py"))
    yield server
    server.close()


def answer(server, tmp_path):
    """The pid of a fork that gets an empty request, what it answers, and its status."""
    reading, writing = os.pipe()
    request = tmp_path / "request"
    request.write_text("{}")
    with open(request) as file, open(reading) as answer:
        pid = server.fork([], [file.fileno(), writing])
        os.close(writing)
        return pid, answer.read(), server.end(pid)


def test_a_fork_answers_and_leaves_no_zombie(server, tmp_path):
    pid, text, status = answer(server, tmp_path)
    assert (text[:9], status) == ('{"error":', 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert server.end(pid) == 1, "its pid may be that of another process"
    assert server._process.poll() is None


def test_a_server_that_died_is_started_again(server, tmp_path):
    answer(server, tmp_path)
    first = server._process
    first.kill()
    first.wait()
    assert answer(server, tmp_path)[2] == 0 and server._process.pid != first.pid


def test_a_server_that_is_stopped_is_killed_and_started_again(server, tmp_path, monkeypatch):
    monkeypatch.setattr(fork_server, "ANSWER_SECONDS", 0.2)
    answer(server, tmp_path)
    first = server._process
    first.send_signal(signal.SIGSTOP)
    assert answer(server, tmp_path)[2] == 0
    assert first.returncode == -signal.SIGKILL and server._process.pid != first.pid


def test_a_server_that_is_stopped_is_killed_with_its_forks_where_this_process_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(fork_server, "ANSWER_SECONDS", 0.2)
    script = tmp_path / "worker.py"
    script.write_text(WAITING.format(str(Path(chat_process.__file__).with_name("chat_worker.py"))))
    server = ForkServer(script)
    (tmp_path / "request").write_text("{}")
    reading, writing = os.pipe()
    with open(tmp_path / "request") as file, open(reading) as output:
        server.fork([], [file.fileno(), writing])
        os.close(writing)
        server._process.send_signal(signal.SIGSTOP)
        server.close()
        assert output.read() == "", "the fork has ended"


def test_an_interrupted_request_does_not_answer_the_next(server, tmp_path, monkeypatch):
    def interrupted(*sent, send=fork_server.socket.send_fds):
        send(*sent)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(fork_server.socket, "send_fds", interrupted)
        answer(server, tmp_path)
    assert answer(server, tmp_path)[2] == 0


def test_the_terminal_does_not_interrupt_the_server(server, tmp_path):
    answer(server, tmp_path)
    assert os.getsid(server._process.pid) == server._process.pid != os.getsid(0)


def test_the_server_and_its_forks_end_with_the_process_that_asks(tmp_path):
    script = tmp_path / "worker.py"
    script.write_text(WAITING.format(str(Path(chat_process.__file__).with_name("chat_worker.py"))))
    server = ForkServer(script)
    (tmp_path / "request").write_text("{}")
    reading, writing = os.pipe()
    with open(tmp_path / "request") as file, open(reading) as output:
        server.fork([], [file.fileno(), writing])
        os.close(writing)
        server._socket.close()  # as the system does
        assert output.read() == "", "the fork has ended"
    assert server._process.wait(timeout=PATIENCE) == 0


def test_a_fork_of_the_process_has_a_server_of_its_own(server, tmp_path):
    answer(server, tmp_path)
    first = server._process
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(tell, str(answer(server, tmp_path)[2]).encode())
            signal.pause()
        finally:
            os._exit(1)
    os.close(tell)
    try:
        assert os.read(told, 99) == b"0"
        assert answer(server, tmp_path)[2] == 0 and server._process is first
        server._socket.close()
        assert first.wait(timeout=PATIENCE) == 0, "the child does not hold its socket"
    finally:
        os.close(told)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
