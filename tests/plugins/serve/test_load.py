"""Many clients at once: each answer is that of the library alone, and the server holds nothing afterwards."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[3] / "tools" / "serve_load.py"


@pytest.fixture
def client(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOL.parent))
    import serve_client

    return serve_client


@pytest.mark.slow
def test_answers_under_load_are_those_of_the_library_alone(tmp_path):
    record = tmp_path / "record.json"
    load = ("--requests", "60", "--clients", "8", "--rows", "4", "--queue", "2", "--stall", "2")
    done = subprocess.run(
        [sys.executable, TOOL, "correct", "llama", *load, "--record", record],
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(record.read_text(encoding="utf-8"))["correct"]["llama"]
    assert found["seen"] == [] and not any(found["left"].values()), done.stderr
    assert sum(found["verdicts"].values()) == 60
    assert found["verdicts"]["equal"] > 30 and found["verdicts"]["cancelled"] > 0
    assert found["statuses"]["503, asked again"] > 0
    assert found["tokens"]["cached"] > 0


@pytest.mark.slow
def test_a_measurement_during_which_a_process_was_paused_is_made_again(client):
    with subprocess.Popen(["sleep", "60"]) as process:
        calls = []

        def run():
            calls.append(process.send_signal(signal.SIGCONT if calls else signal.SIGSTOP))
            time.sleep(0.3)
            process.send_signal(signal.SIGCONT)
            return len(calls)

        assert client.unpaused(run, [process]) == 2
        process.kill()


def test_a_server_error_is_no_refusal(client):
    from serve_requests import is_refusal

    stream = {"content-type": "text/event-stream"}
    assert is_refusal(client.Reply(400)) and not is_refusal(client.Reply(500))
    for kind in ("invalid_request_error", "server_error"):
        reply = client.Reply(200, stream, events=[{"error": {"type": kind}}])
        assert is_refusal(reply) == (kind == "invalid_request_error")
