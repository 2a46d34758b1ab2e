"""A hostile chat template costs a bounded time and memory, in a process that knows no secrets."""

import json
import os
from threading import Thread

import pytest

from zoo.errors import TokenizerError
from zoo.tokenizer import chat_process
from zoo.tokenizer.chat_process import render_all
from zoo.tokenizer.fork_server import ForkServer


def render(template):
    (rendered,) = render_all(template, [{}])
    if isinstance(rendered, TokenizerError):
        raise rendered
    return rendered


def refusal(template):
    with pytest.raises(TokenizerError, match=r"^chat template: ") as caught:
        render(template)
    return str(caught.value).removeprefix("chat template: ")


def change_request(monkeypatch, old, new):
    """Replace a part of the requests that processes get."""
    run = chat_process._run
    monkeypatch.setattr(chat_process, "_run", lambda request: run(request.replace(old, new)))


@pytest.fixture
def requests(monkeypatch):
    """The requests that processes get, from now on."""
    seen, run = [], chat_process._run
    monkeypatch.setattr(
        chat_process, "_run", lambda request: seen.append(json.loads(request)) or run(request)
    )
    chat_process._compiled.cache_clear()
    return seen


@pytest.fixture
def answering(monkeypatch, tmp_path):
    """A function that lets processes answer by an expression, in place of rendering."""
    script = tmp_path / "worker.py"
    server = ForkServer(script)
    monkeypatch.setattr(chat_process, "SERVER", server)
    monkeypatch.setattr(chat_process, "_compiled", lambda template: "")
    worker = chat_process.__file__.replace("chat_process", "chat_worker")
    yield lambda expression: script.write_text(
        "import os, runpy, stat, sys, time\nseen = []\n"
        f"runpy.run_path({worker!r})['serve'](lambda request: {expression})"
    )
    server.close()


def test_one_process_renders_several_times(requests):
    one, refused, two = render_all("{{ 6 // x }}", [{"x": 6}, {"x": 0}, {"x": 3}])
    assert (one, two) == ("1", "2") and "division or modulo by zero" in str(refused)
    assert ["renderings" in request for request in requests] == [False, True]


def test_a_template_is_compiled_once_where_no_message_is_known(requests):
    for name in ("Ada", "Alan"):
        assert render_all("Dear {{ name }}", [{"name": name}]) == [f"Dear {name}"]
    compiling, *rendering = requests
    assert "Ada" not in str(compiling) and compiling["template"] == "Dear {{ name }}"
    assert len(rendering) == 2 and not any("template" in request for request in rendering)


def test_the_limit_of_output_is_that_of_all_renderings():
    with pytest.raises(TokenizerError, match="wrote more than 4 MiB"):
        render_all("{{ 'x' * (3 * 2**20) }}", [{}, {}])


@pytest.mark.slow
@pytest.mark.parametrize(
    "template",
    [
        "{{ 'a' * 10**9 }}",
        "{{ '%1000000000s' % 'x' }}",
        "{{ 'x' | center(10**9) }}",
        "{% set n = namespace(a='aaaaaaaa') %}"
        "{% for i in range(60) %}{% set n.a = n.a ~ n.a %}{% endfor %}{{ n.a | length }}",
    ],
    ids=["product", "format", "filter", "doubling"],
)
def test_giant_strings_end_the_renderer_alone(template):
    assert refusal(template) in (
        "ran out of memory",
        "wrote more than 4 MiB",
        "took more than 5 s of processor time",
    )


def test_memory_is_watched_where_the_system_sets_no_limit(monkeypatch):
    assert chat_process._resident_bytes(os.getpid()) > 2**20
    change_request(
        monkeypatch, f'"memory_bytes": {chat_process.MEMORY}'.encode(), b'"memory_bytes": 1099511627776'
    )
    grow = "{% set n = namespace(a=[]) %}"
    grow += "{% for i in range(90) %}{% set n.a = n.a + ['x' * (10**7 + i)] %}{% endfor %}"
    grow += "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    assert refusal(grow) == "ran out of memory"


@pytest.mark.slow
def test_a_loop_without_end_is_stopped_and_keeps_no_other_thread_waiting(monkeypatch):
    monkeypatch.setattr(chat_process, "CPU_SECONDS", 1)
    forever = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    ended = []
    threads = [Thread(target=lambda: ended.append(refusal(forever)))]
    for number in range(4):
        threads.append(Thread(target=lambda number=number: ended.append(render(f"{number}"))))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ended[:-1]) == ["0", "1", "2", "3"]
    assert ended[-1] == "took more than 1 s of processor time"


@pytest.mark.slow
def test_waiting_for_the_processor_does_not_count_as_using_it(monkeypatch, answering):
    answering("time.sleep(0.5) or {'answers': [{'text': 'x'}]}")
    monkeypatch.setattr(chat_process, "CPU_SECONDS", 0.1)
    assert render("x") == "x"


def test_a_process_that_waits_for_ever_is_stopped(monkeypatch, answering):
    answering("time.sleep(60)")
    monkeypatch.setattr(chat_process, "CLOCK_SECONDS", 0.3)
    assert refusal("x") == "took longer than 0.3 s"


def test_endless_output_is_stopped_early():
    endless = "{% for i in range(99999) %}{% for j in range(99999) %}" + "x" * 99 + "{% endfor %}{% endfor %}"
    assert refusal(endless) == "wrote more than 4 MiB"
    assert len(render("{{ 'x' * (4 * 2**20) }}")) == 4 * 2**20
    assert refusal("{{ '你' * (2 * 2**20) }}") == "wrote more than 4 MiB"  # bytes, not characters


def test_the_reader_stops_a_process_that_writes_too_much(monkeypatch):
    monkeypatch.setattr(chat_process, "OUTPUT", 0)  # the renderer is told 4 MiB all the same
    change_request(monkeypatch, b'"output_bytes": 0', b'"output_bytes": 4194304')
    assert refusal("{{ 'x' * 10**6 }}") == "wrote more than 0 MiB"


def test_a_renderer_that_dies_is_reported(answering):
    answering("os._exit(3)")
    assert "status 3" in refusal("x")


def test_a_server_that_cannot_start_is_reported(answering):
    answering("(")
    assert refusal("x") == "its process cannot be started (it ended)"


def test_the_renderer_sees_no_secret_of_the_environment(monkeypatch, answering):
    answering("{'answers': [{'text': str('HF_TOKEN' in os.environ)}]}")
    monkeypatch.setenv("HF_TOKEN", "secret")
    assert render("x") == "False"


def test_a_renderer_knows_nothing_of_another(answering):
    answering("seen.append(request) or {'answers': [{'text': str(len(seen))}]}")
    assert render("x") == render("x") == "1"


def test_a_renderer_cannot_reach_the_server(answering):
    sockets = (
        "[f for f in range(256) if os.path.exists(f'/dev/fd/{f}') and stat.S_ISSOCK(os.fstat(f).st_mode)]"
    )
    answering(f"{{'answers': [{{'text': str({sockets})}}]}}")
    assert render("x") == "[]"


def test_a_process_that_answers_less_than_it_was_asked_is_reported(answering):
    answering("{'answers': [{'text': 'x'}]}")
    assert render("x") == "x"
    with pytest.raises(TokenizerError, match="ended without an answer"):
        render_all("x", [{}, {}])
