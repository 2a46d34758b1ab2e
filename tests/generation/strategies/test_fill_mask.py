"""Filling masks: which tokens come, how they are told, what is refused."""

import json
import shutil

import mlx.core as mx
import pytest

import zoo
from zoo.errors import PromptError
from zoo.generation.strategies.fill_mask import fill
from zoo.loading import Loaded
from zoo.testing import subject
from zoo.tokenizer import load_tokenizer

SENTENCE = "The capital of France is [MASK]."


@pytest.fixture
def loaded(tokenizer_folder, tmp_path):
    made = subject("bert", "pocket")
    return Loaded(made.model, load_tokenizer(tokenizer_folder), made.architecture, made.recipe, {}, tmp_path)


def test_candidates_are_the_likeliest_tokens_in_order(loaded):
    done = zoo.generate(loaded, SENTENCE, top_k=4)
    ids = loaded.tokenizer.encode(SENTENCE)
    probabilities = mx.softmax(loaded.model(mx.array([ids]))[0, ids.index(2)], axis=-1)
    best = sorted(range(probabilities.size), key=lambda id: -probabilities[id].item())[:4]
    assert done.tokens == best
    for candidate, id in zip(done.candidates, best, strict=True):
        assert candidate["token"] == id and candidate["mask"] == 1
        assert candidate["text"] == loaded.tokenizer.decode([id])
        assert candidate["probability"] == pytest.approx(probabilities[id].item(), rel=1e-4)
    assert done.finish_reason == "stop"


def test_each_candidate_is_a_line(loaded):
    lines = zoo.generate(loaded, SENTENCE).text.splitlines()
    assert len(lines) == 5
    first = zoo.generate(loaded, SENTENCE).candidates[0]
    assert lines[0] == f"{first['probability']:.4f}  {first['text'].strip()}"


def test_several_masks_are_numbered(loaded):
    done = zoo.generate(loaded, "[MASK] lies in [MASK].", top_k=2)
    assert [candidate["mask"] for candidate in done.candidates] == [1, 1, 2, 2]
    assert [line.split()[0] for line in done.text.splitlines()] == ["1", "1", "2", "2"]


def test_a_mask_takes_the_space_before_it(loaded):
    assert loaded.tokenizer.encode("is [MASK].") == [
        *loaded.tokenizer.encode("is"),
        2,
        *loaded.tokenizer.encode("."),
    ]


def test_the_config_may_name_the_mask(loaded):
    loaded.config["mask_token_id"] = 9
    assert len(zoo.generate(loaded, [5, 9, 6], top_k=1).tokens) == 1
    with pytest.raises(PromptError, match="no "):
        zoo.stream(loaded, [5, 2, 6])


@pytest.mark.parametrize(
    ("prompt", "settings", "word"),
    [
        ("The capital.", {}, r"no \[MASK\]"),
        ("", {}, "empty"),
        (SENTENCE, {"top_k": 0}, "`top_k`"),
        (SENTENCE, {"top_k": 10**9}, "`top_k`"),
        (SENTENCE, {"temperature": 1.0}, "`temperature`"),
    ],
)
def test_bad_input_is_refused(loaded, prompt, settings, word):
    with pytest.raises(PromptError, match=word):
        zoo.stream(loaded, prompt, **settings)


def test_a_model_without_a_head_says_what_it_can_do(loaded):
    loaded.recipe = loaded.recipe.change(head=None)
    with pytest.raises(PromptError, match="zoo embed"):
        zoo.stream(loaded, SENTENCE)


def test_filling_takes_the_surest_first_and_leaves_no_mask(loaded):
    ids = loaded.tokenizer.encode("[MASK] [MASK] is in [MASK].")
    filled = fill(loaded, ids)
    assert 2 not in filled and len(filled) == len(ids)
    assert all(new == old for new, old in zip(filled, ids, strict=True) if old != 2)
    probabilities = mx.softmax(loaded.model(mx.array([ids]))[0], axis=-1)
    probabilities[:, 2] = 0
    surest = max(
        (place for place, id in enumerate(ids) if id == 2), key=lambda p: probabilities[p].max().item()
    )
    assert filled[surest] == mx.argmax(probabilities[surest]).item()


def test_the_command_prints_candidates_and_gives_them_as_json(command, folder, tokenizer_folder):
    path = folder("bert", tokenizer=False, preset="pocket")
    shutil.copytree(tokenizer_folder, path, dirs_exist_ok=True)
    done = command("run", path, SENTENCE, "--top-k", "3")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and len(lines) == 3, done.stderr
    values = json.loads(command("run", path, SENTENCE, "--top-k", "3", "--json").stdout)
    assert [f"{c['probability']:.4f}  {c['text'].strip()}" for c in values["candidates"]] == lines
    refused = command("run", path, "no mask")
    assert refused.returncode == 1 and "[MASK]" in refused.stderr and refused.stdout == ""
