"""Files of prompts divided among ranks: each answer once and in order, also after a rank was killed."""

import json

import pytest

import zoo
from tests.helpers import prompts_on_ranks
from tests.helpers.ranks import run_ranks
from zoo.generation.prompts_file import answer_prompts, read_prompts


@pytest.fixture
def prompts(tmp_path):
    """Prompts of which some end soon and others late, one of them invalid, and their answers by one rank."""
    path, output = tmp_path / "prompts.jsonl", tmp_path / "whole.jsonl"
    places = ["China", "France", "Japan", "Peru", "Kenya", "Nepal"]
    lines = [
        dict(prompt=f"The capital city of {places[k % 6]} is", id=k, max_tokens=1 + 3 * (k % 5), seed=k)
        for k in range(24)
    ]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    loaded = zoo.load("llama")
    list(answer_prompts(loaded, read_prompts(loaded, path, {}), output))
    return path, output.read_bytes()


def run(count, path, output, *more):
    command = ["-m", "zoo", "run", "llama", "--prompts", path, "--output", output]
    return run_ranks(count, *command, "--parallel", "data", *more)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.nightly)])
def test_killed_and_continued_each_prompt_has_one_answer_that_of_one_rank(prompts, tmp_path, count):
    path, whole = prompts
    output = tmp_path / "answers.jsonl"
    killed = run_ranks(count, prompts_on_ranks.__file__, path, output)
    assert f"rank {count - 1}" in killed.stderr
    before = output.read_bytes()
    assert whole.startswith(before) and 0 < before.count(b"\n") < whole.count(b"\n")
    run(count, path, output)
    assert output.read_bytes() == whole


@pytest.mark.slow
def test_an_invalid_line_of_any_rank_is_recorded_in_its_place(prompts, tmp_path):
    path, whole = prompts
    lines = path.read_text(encoding="utf-8").split("\n")
    path.write_text("\n".join([lines[0], '{"id": 1}', *lines[2:]]), encoding="utf-8")
    output = tmp_path / "answers.jsonl"
    run(2, path, output, "--keep-going")
    answers = output.read_bytes().splitlines()
    assert json.loads(answers[1])["line"] == 2 and "error" in json.loads(answers[1])
    expected = whole.splitlines()
    assert [answers[0], *answers[2:]] == [expected[0], *expected[2:]]


def test_data_parallelism_without_a_file_of_prompts_is_refused(command):
    refused = command("run", "llama", "hello", "--parallel", "data")
    assert refused.returncode == 2 and "--parallel data goes with --prompts" in refused.stderr
