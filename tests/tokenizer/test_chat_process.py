"""A hostile chat template costs a bounded time and memory, in a process that knows no secrets."""

import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import pytest
from jinja2.defaults import DEFAULT_FILTERS

from tests.helpers.waiting import PATIENCE
from zoo.errors import TokenizerError
from zoo.tokenizer import chat_process
from zoo.tokenizer.chat_process import Worker, render_all, start_rendering

FOREVER = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


@pytest.fixture(autouse=True)
def idle(monkeypatch):
    """The processes of one test that wait."""
    workers = []
    monkeypatch.setattr(chat_process, "_idle", workers)
    yield workers
    for worker in workers:
        worker.kill()


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
    answer = Worker.answer
    monkeypatch.setattr(
        Worker, "answer", lambda self, request, count: answer(self, request.replace(old, new), count)
    )


@pytest.fixture
def answering(monkeypatch, tmp_path):
    """A function that lets processes answer by an expression, in place of rendering."""
    script = tmp_path / "worker.py"
    monkeypatch.setattr(chat_process, "WORKER", script)
    return lambda expression: script.write_text(
        "import json, os, sys, time\nsys.stdin.readline()\n"
        f"for line in sys.stdin: print(json.dumps({expression}), flush=True)"
    )


def test_one_process_renders_several_times(idle):
    one, refused, two = render_all("{{ 6 // x }}", [{"x": 6}, {"x": 0}, {"x": 3}])
    assert (one, two) == ("1", "2") and "division or modulo by zero" in str(refused)
    (worker,) = idle
    assert render_all("{{ 6 // x }}", [{"x": 1}]) == ["6"] and idle == [worker]


def test_a_process_that_was_started_early_renders_first(idle):
    start_rendering("x")
    (worker,) = idle
    assert render("x") == "x" and idle == [worker]


def test_a_process_renders_one_template_and_a_few_wait(idle):
    assert [render(f"{number}") for number in range(6)] == [*"012345"]
    assert [worker.template for worker in idle] == [*"2345"]
    assert all(worker.lives for worker in idle)


def test_a_rendering_leaves_nothing_behind_for_the_next():
    keep = "{% set n = namespace(a='') %}{{ n.a }}{% set n.a = x %}{{ y }}{% set y = x %}{% macro f() %}{% endmacro %}"
    assert render_all(keep, [{"x": "secret", "y": 1}]) == ["1"]
    assert render_all(keep, [{"x": "", "y": 2}]) == ["2"]


def test_a_malformed_template_is_named_with_its_line(idle):
    assert refusal("x\n{% if") == "line 2: unexpected 'end of template'"
    assert not idle


def test_no_filter_of_jinja_needs_a_file():
    """A process that renders opens none, so that what Jinja imports late has to be imported early."""
    given = {"map": "('string')", "replace": "('x', 'y')"}
    filters = [
        f"{{% if {name!r} == name %}}{{{{ value | {name}{given.get(name, '')} }}}}{{% endif %}}"
        for name in DEFAULT_FILTERS
    ]
    rendered = render_all(
        "".join(filters), [{"name": name, "value": "<b>x y</b>"} for name in DEFAULT_FILTERS]
    )
    assert {str(text) for text in rendered if "open files" in str(text) or ".py" in str(text)} == set()
    assert sum(isinstance(text, str) for text in rendered) > 35


def test_the_system_refuses_files_to_a_process():
    assert "Too many open files" in refusal("{{ 'x'.encode('cp037') }}"), "whose codec is a file of Python"


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
    monkeypatch.setattr(chat_process, "MEMORY", 2**27)
    for limit in ("CPU_SECONDS", "CLOCK_SECONDS"):  # memory is what ends it, however slowly it fills
        monkeypatch.setattr(chat_process, limit, PATIENCE)
    change_request(monkeypatch, f'"memory_bytes": {chat_process.MEMORY}', '"memory_bytes": 1099511627776')
    grow = "{% set n = namespace(a=[]) %}"
    grow += "{% for i in range(20) %}{% set n.a = n.a + ['x' * (10**7 + i)] %}{% endfor %}"
    assert refusal(grow + FOREVER) == "ran out of memory"


@pytest.mark.slow
def test_a_loop_without_end_is_stopped_and_keeps_no_other_thread_waiting(monkeypatch):
    monkeypatch.setattr(chat_process, "CPU_SECONDS", 1)
    template = "{% if loop %}" + FOREVER + "{% endif %}{{ x }}"
    ended = []

    def show(values):
        try:
            ended.append(render_all(template, [values]))
        except TokenizerError as error:
            ended.append(str(error))

    threads = [Thread(target=show, args=[{"loop": not number, "x": number}]) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ended[:-1]) == [["1"], ["2"], ["3"], ["4"]]
    assert ended[-1] == "chat template: took more than 1 s of processor time"


def test_several_threads_render_in_processes_of_their_own(idle):
    template = "{{ x }}" * 3
    with ThreadPoolExecutor(8) as threads:
        rendered = list(threads.map(lambda x: render_all(template, [{"x": x}]), range(40)))
    assert rendered == [[f"{x}" * 3] for x in range(40)]
    assert 1 <= len(idle) <= chat_process.MOST_IDLE


@pytest.mark.slow
def test_waiting_for_the_processor_does_not_count_as_using_it(monkeypatch, answering):
    answering("time.sleep(0.5) or [{'text': 'x'}]")
    monkeypatch.setattr(chat_process, "CPU_SECONDS", 0.1)
    assert render("x") == "x"


def test_a_process_that_waits_for_ever_is_stopped(monkeypatch, answering):
    answering("time.sleep(60)")
    monkeypatch.setattr(chat_process, "CLOCK_SECONDS", 0.3)
    assert refusal("x") == "took longer than 0.3 s"


def test_endless_output_is_stopped_early():
    assert refusal(FOREVER.replace("{% endfor %}", "x" * 99 + "{% endfor %}", 1)) == "wrote more than 4 MiB"
    assert len(render("{{ 'x' * (4 * 2**20) }}")) == 4 * 2**20
    assert refusal("{{ '你' * (2 * 2**20) }}") == "wrote more than 4 MiB"  # bytes, not characters


def test_the_reader_stops_a_process_that_writes_too_much(monkeypatch):
    monkeypatch.setattr(chat_process, "OUTPUT", 0)  # the renderer is told 4 MiB all the same
    change_request(monkeypatch, '"output_bytes": 0', '"output_bytes": 4194304')
    assert refusal("{{ 'x' * 10**6 }}") == "wrote more than 0 MiB"


def test_a_renderer_that_dies_is_reported(answering):
    answering("os._exit(3)")
    assert "status 3" in refusal("x")


def test_a_process_that_cannot_start_is_reported(monkeypatch, answering):
    answering("(")
    assert "its process ended without an answer (status 1)" in refusal("x")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert refusal("x") == "its process cannot be started (No such file or directory)"


def test_a_process_sees_no_secret_of_the_environment(monkeypatch, answering):
    answering("[{'text': str('HF_TOKEN' in os.environ)}]")
    monkeypatch.setenv("HF_TOKEN", "secret")
    assert render("x") == "False"


def test_a_process_that_answers_less_than_it_was_asked_is_reported(answering):
    answering("[{'text': 'x'}]")
    assert render("x") == "x"
    with pytest.raises(TokenizerError, match="ended without an answer"):
        render_all("x", [{}, {}])


def test_a_process_that_died_is_replaced(idle):
    render("x")
    (first,) = idle
    os.kill(first._process.pid, signal.SIGKILL)
    first._process.wait(PATIENCE)
    assert render("x") == "x" and idle != [first]


def test_an_interrupted_rendering_does_not_answer_the_next(monkeypatch, idle):
    start_rendering("{{ x }}")
    (first,) = idle
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(chat_process.json, "loads", lambda line: exec("raise KeyboardInterrupt"))
        render_all("{{ x }}", [{"x": 1}])
    assert not first.lives
    assert render_all("{{ x }}", [{"x": 2}]) == ["2"]


def test_the_terminal_does_not_interrupt_a_process(idle):
    render("x")
    pid = idle[0]._process.pid
    assert os.getsid(pid) == pid != os.getsid(0)


def test_a_process_ends_with_the_one_that_asks(idle):
    render("x")
    idle[0]._socket.close()  # as the system does
    assert idle[0]._process.wait(timeout=PATIENCE) == 0


def test_a_fork_renders_in_a_process_of_its_own(idle):
    render("x")
    (first,) = idle
    child = os.fork()
    if not child:
        status = 1
        try:
            status = int(not (render("x") == "x" and idle != [first]))
            idle[0].kill()
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert render("x") == "x" and idle == [first]
