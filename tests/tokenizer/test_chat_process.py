"""A hostile chat template costs a bounded time and memory, in a process that knows no secrets."""

import os

import pytest

from zoo.errors import TokenizerError
from zoo.tokenizer import chat_process
from zoo.tokenizer.chat_process import render_all


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
    """Replace a part of the request that the process gets."""
    start = chat_process._render_in_process
    monkeypatch.setattr(
        chat_process, "_render_in_process", lambda request, count: start(request.replace(old, new), count)
    )


def test_one_process_renders_several_times(monkeypatch):
    started = []
    start = chat_process._render_in_process
    monkeypatch.setattr(
        chat_process, "_render_in_process", lambda *request: started.append(1) or start(*request)
    )
    one, refused, two = render_all("{{ 6 // x }}", [{"x": 6}, {"x": 0}, {"x": 3}])
    assert (one, two) == ("1", "2") and "division or modulo by zero" in str(refused)
    assert started == [1]


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


def test_a_loop_without_end_is_stopped(monkeypatch):
    monkeypatch.setattr(chat_process, "CPU_SECONDS", 1)
    forever = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    assert refusal(forever) == "took more than 1 s of processor time"


def test_waiting_for_the_processor_does_not_count_as_using_it(monkeypatch, tmp_path):
    (tmp_path / "chat_worker.py").write_text(
        'import time; time.sleep(0.5); print(\'{"answers": [{"text": "x"}]}\')'
    )
    monkeypatch.setattr(chat_process, "__file__", str(tmp_path / "chat.py"))
    monkeypatch.setattr(chat_process, "CPU_SECONDS", 0.1)
    assert render("x") == "x"


def test_a_process_that_waits_for_ever_is_stopped(monkeypatch, tmp_path):
    (tmp_path / "chat_worker.py").write_text("import time; time.sleep(60)")
    monkeypatch.setattr(chat_process, "__file__", str(tmp_path / "chat.py"))
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


def test_a_renderer_that_dies_is_reported(monkeypatch, tmp_path):
    (tmp_path / "chat_worker.py").write_text("raise SystemExit(3)")
    monkeypatch.setattr(chat_process, "__file__", str(tmp_path / "chat.py"))
    assert "status 3" in refusal("x")


def test_the_renderer_sees_no_secret_of_the_environment(monkeypatch, tmp_path):
    spy = "import os, json; print(json.dumps({'answers': [{'text': str('HF_TOKEN' in os.environ)}]}))"
    (tmp_path / "chat_worker.py").write_text(spy)
    monkeypatch.setattr(chat_process, "__file__", str(tmp_path / "chat.py"))
    monkeypatch.setenv("HF_TOKEN", "secret")
    assert render("x") == "False"


def test_a_process_that_answers_less_than_it_was_asked_is_reported(monkeypatch, tmp_path):
    (tmp_path / "chat_worker.py").write_text('print(\'{"answers": [{"text": "x"}]}\')')
    monkeypatch.setattr(chat_process, "__file__", str(tmp_path / "chat_process.py"))
    assert render("x") == "x"
    with pytest.raises(TokenizerError, match="ended without an answer"):
        render_all("x", [{}, {}])
