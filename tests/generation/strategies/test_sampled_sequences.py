"""Several sampled texts by `return_sequences`, as transformers' `num_return_sequences` with `do_sample`."""

import pytest

import zoo
from zoo.errors import PromptError


@pytest.fixture(scope="module")
def loaded():
    return zoo.load("llama")


def test_so_many_texts_are_sampled_best_first(loaded):
    how = dict(temperature=1.0, seed=3, max_tokens=5)
    answer = zoo.generate(loaded, "The capital of", return_sequences=3, **how)
    assert len(answer.candidates) == 3 and answer.text == answer.candidates[0]["text"]
    scores = [candidate["score"] for candidate in answer.candidates]
    assert scores == sorted(scores, reverse=True)
    alone = {zoo.generate(loaded, "The capital of", **how | {"seed": seed}).text for seed in (3, 4, 5)}
    assert {candidate["text"] for candidate in answer.candidates} == alone


def test_each_prompt_of_a_batch_has_its_texts(loaded):
    prompts = ["The capital of", "The river"]
    answers = zoo.batch(loaded, prompts, return_sequences=2, temperature=1.0, seed=3, max_tokens=3)
    assert [len(answer.candidates) for answer in answers] == [2, 2]


def test_without_a_temperature_or_beams_there_is_one_text(loaded):
    with pytest.raises(PromptError, match="needs several `beams`, or a `temperature` above 0"):
        zoo.generate(loaded, "The capital of", return_sequences=3)
    assert not zoo.generate(loaded, "The", return_sequences=1, temperature=1.0, max_tokens=2).candidates


def test_several_beams_are_still_not_sampled(loaded):
    with pytest.raises(PromptError, match="beam search does not sample"):
        zoo.generate(loaded, "The capital of", return_sequences=2, beams=4, temperature=1.0)


def test_the_command_prints_each_on_a_line(command):
    asked = ["--return-sequences", "3", "--temperature", "1", "--seed", "1", "--max-tokens", "4"]
    done = command("run", "llama", "The capital of", *asked)
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 3, done.stderr
