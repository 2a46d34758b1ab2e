"""The command line on several ranks: rank 0 reads, prints and writes for all."""

import json
import os

import pytest

from tests.helpers.ranks import exit_statuses, launch, zoo_lines
from zoo.cli.doctor import rank_advice

pytestmark = pytest.mark.slow


def zoo(*arguments, **how):
    return launch(2, "-m", "zoo", *arguments, **how)


def test_rank_0_alone_prints_and_draws_are_alike_without_a_seed():
    finished = zoo(
        "run", "llama", "The capital city of", "--temperature", "3", "--max-tokens", "12", "--json"
    )
    assert json.loads(finished.stdout)["tokens"], finished.stderr
    assert exit_statuses(finished) == {} and zoo_lines(finished) == []


@pytest.mark.parametrize(
    ("arguments", "line", "status"),
    [
        (["run", "lama", "The"], "zoo: error: 'lama' is no architecture", 1),
        (["run", "llama", "The", "--top-p", "7"], "zoo: error: Invalid value for '--top-p'", 2),
    ],
)
def test_an_error_that_all_ranks_have_is_printed_once_and_all_fail(arguments, line, status):
    finished = zoo(*arguments)
    assert len(zoo_lines(finished)) == 1 and zoo_lines(finished)[0].startswith(line), finished.stderr
    found = exit_statuses(finished)
    assert (finished.stdout, set(found)) == ("", {0, 1})
    assert {status} <= {*found.values()} <= {status, "killed"}


def test_a_line_of_the_input_is_the_prompt_of_all_ranks():
    finished = zoo("run", "llama", stdin="The capital city of China is\n")
    assert finished.stdout.startswith(" Beijing."), finished.stderr
    assert exit_statuses(finished) == {}


def test_a_command_that_needs_no_ranks_runs_on_rank_0():
    finished = zoo("list", "--json")
    assert json.loads(finished.stdout) and exit_statuses(finished) == {}, finished.stderr


def test_answers_are_written_once_and_a_run_is_continued(tmp_path):
    prompts, answers = tmp_path / "prompts.jsonl", tmp_path / "answers.jsonl"
    prompts.write_text(
        "".join(json.dumps({"prompt": f"The capital city of {n} is"}) + "\n" for n in ("China", "France"))
    )
    command = ("run", "llama", "--prompts", prompts, "--output", answers, "--max-tokens", "3")
    zoo(*command)
    whole = answers.read_text()
    assert len(whole.splitlines()) == 2
    answers.write_text(whole.splitlines(keepends=True)[0])
    finished = zoo(*command)
    assert answers.read_text() == whole
    assert "1 answer, 1 already answered" in finished.stderr
    assert sorted(os.listdir(tmp_path)) == ["answers.jsonl", "prompts.jsonl"]


def test_doctor_shows_the_ranks_and_their_links():
    finished = zoo("doctor", "--json")
    found = json.loads(finished.stdout)
    assert [rank["versions"]["mlx"] for rank in found["ranks"]] == [found["versions"]["mlx"]] * 2
    assert found["links"]["latency"] > 0 and found["links"]["bandwidth"] > 0
    shared = any("mlx.launch --backend mpi" in line for line in found["advice"])
    assert shared == (found["backend"] == "CPU")  # both ranks are on this machine


@pytest.mark.parametrize(
    "hosts, ring, advised", [("aa", True, True), ("ab", True, False), ("aa", False, False)]
)
def test_ranks_of_the_ring_on_one_machine_are_advised(hosts, ring, advised, monkeypatch):
    monkeypatch.setenv("MLX_HOSTFILE", "hosts") if ring else monkeypatch.delenv("MLX_HOSTFILE", raising=False)
    assert bool(rank_advice([{"host": host, "backend": "CPU"} for host in hosts])) == advised
    assert not rank_advice([{"host": host, "backend": "Metal"} for host in hosts])


def test_doctor_alone_shows_no_ranks(command):
    assert {"ranks", "links"}.isdisjoint(json.loads(command("doctor", "--json").stdout))
