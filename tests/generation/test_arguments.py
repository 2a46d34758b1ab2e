"""What Python's callers may pass, and what each mistake is answered with: one line that names the argument."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx

from zoo.errors import PromptError
from zoo.generation.strategies.embedding import embed
from zoo.loading import Loaded
from zoo.testing import subject

PROMPT = [5, 6, 7]


def made(name, folder):
    found = subject(name)
    return Loaded(found.model, None, found.architecture, found.recipe, {"mask_token_id": 9}, folder)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return made("llama", tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    return {name: made(name, tmp_path_factory.mktemp(name)) for name in ("bert", "llada", "transformer")}


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("max_tokens", value) for value in ("3", 2.5, True, 0, -1, 10**30, math.nan, [3])),
        *(("temperature", value) for value in ("1", math.nan, math.inf, -1, True, [1], 10**400, 1e-320)),
        *(("top_k", value) for value in ("2", 2.5, True, -1)),
        *(("top_p", value) for value in ("x", math.nan, 0, 2, True)),
        *(("min_p", value) for value in ("x", math.nan, 2, True)),
        *(("seed", value) for value in ("1", 1.5, -1, 2**70, True, math.nan)),
        *(("stop", value) for value in (5, [5], b"x", {"a": 1})),
        *((name, "a\ud800") for name in ("stop", "regex", "grammar", "dry_breakers", "banned")),
        *(("logprobs", value) for value in ("yes", -1, 2.5, 10**9, math.nan)),
        *(("special_tokens", value) for value in ("no", 2)),
        *(("prefill_chunk", value) for value in ("3", 0, -1, 2.5, True)),
        *(("beams", value) for value in ("3", 2.5, 0, True, 10**6)),
        *(("min_tokens", value) for value in ("1", 2.5, True, -1)),
        *(("length_penalty", value) for value in ("x", math.nan, True, math.inf)),
        *(("early_stopping", value) for value in ("soon", 2, 0.5)),
        *(("strategy", value) for value in (5, ["x"])),
    ],
)
def test_a_setting_of_a_wrong_kind_is_named(llama, setting, value):
    with pytest.raises(PromptError, match=f"`{setting}` must") as caught:
        zoo.stream(llama, PROMPT, **{setting: value})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("bert", "top_k", "2"),
        ("bert", "top_k", True),
        ("llada", "max_tokens", 2.5),
        ("llada", "steps", "3"),
        ("llada", "steps", 0),
        ("llada", "block_length", 2.5),
        ("transformer", "max_tokens", "3"),
        ("transformer", "source_language", 5),
        ("transformer", "target_language", ["a"]),
        ("transformer", "min_tokens", 1.5),
    ],
)
def test_each_strategy_is_asked_the_same(others, name, setting, value):
    with pytest.raises(PromptError, match=f"`{setting}` must"):
        zoo.stream(others[name], PROMPT, **{setting: value})


def test_numbers_of_numpy_are_numbers(llama):
    plain = zoo.generate(llama, PROMPT, max_tokens=3, temperature=0.5, seed=1)
    theirs = zoo.generate(
        llama, np.array(PROMPT), max_tokens=np.int64(3), temperature=np.float32(0.5), seed=np.int32(1)
    )
    scalars = [mx.array(id) for id in PROMPT]
    assert plain == zoo.generate(llama, scalars, max_tokens=3, temperature=0.5, seed=1)
    assert plain == theirs == zoo.generate(llama, mx.array(PROMPT), max_tokens=3, temperature=0.5, seed=1)


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        (None, "got NoneType"),
        (5, "got int"),
        (b"x", "got bytes"),
        (object(), "got object"),
        ({}, "got dict"),
        ([1.0], "got 1.0 at 0"),
        ([1, None], "got None at 1"),
        ([True], "got True at 0"),
        ([math.nan], "got nan at 0"),
        ([-1], "token id -1"),
        ([10**9], "token id 1000000000"),
        ([], "empty"),
        ("", "empty"),
        (["a", "b"], r"several texts: call it for each of them, \[zoo.generate"),
        ([[1, 2]], "several lists"),
        (mx.array([[1, 2]]), "several lists"),
        ({"role": "user", "content": "x"}, r"chat messages: call zoo\.chat\(loaded, messages\)"),
        ([{"role": "user", "content": "x"}], r"chat messages: call zoo\.chat\(loaded, messages\)"),
    ],
)
def test_a_prompt_of_a_wrong_kind_says_what_is_right(llama, others, prompt, words):
    for loaded in (llama, *others.values()):
        with pytest.raises(PromptError, match=words):
            zoo.stream(loaded, prompt)


@pytest.mark.parametrize("call", ["generate", "stream", "chat", "embed"])
def test_a_name_is_no_loaded_model(call):
    with pytest.raises(PromptError, match=rf"zoo\.{call}\(zoo\.load\('llama'\), …\)"):
        getattr(zoo, call)("llama", "hi")
    with pytest.raises(PromptError, match="got NoneType"):
        getattr(zoo, call)(None, "hi")


@pytest.mark.parametrize("texts", ["abc", None, 5, [5], [None], [], [""], [["a"]], b"x", [b"x"], [[]]])
def test_what_is_embedded_is_a_list_of_texts(others, texts):
    with pytest.raises(PromptError):
        embed(others["bert"], texts)


@pytest.mark.parametrize(
    "settings", [{"pooling": 5}, {"pooling": ["mean"]}, {"normalise": "x"}, {"normalise": 2}]
)
def test_how_it_is_embedded_is_checked(others, settings):
    with pytest.raises(PromptError, match=f"`{next(iter(settings))}`"):
        embed(others["bert"], [[5, 6]], **settings)


def test_a_number_of_logprobs_is_so_many_alternatives(llama):
    plain = zoo.generate(llama, PROMPT, max_tokens=4, logprobs=True)
    assert plain.alternatives is None and len(plain.logprobs) == 4
    done = zoo.generate(llama, PROMPT, max_tokens=4, logprobs=3)
    assert (done.tokens, done.logprobs) == (plain.tokens, plain.logprobs)
    logits = llama.model(mx.array([PROMPT + done.tokens]))[0, len(PROMPT) - 1 : -1]
    each = (logits - mx.logsumexp(logits, axis=-1, keepdims=True)).tolist()  # (4, V)
    for found, expected in zip(done.alternatives, each, strict=True):
        best = sorted(range(len(expected)), key=lambda token: -expected[token])[:3]
        assert list(found) == best
        assert list(found.values()) == pytest.approx([expected[token] for token in best], abs=1e-4)
    steps = list(zoo.stream(llama, PROMPT, max_tokens=2, logprobs=1, temperature=2.0, seed=3))
    assert [len(step.alternatives) for step in steps] == [1, 1]
    assert zoo.generate(llama, PROMPT, max_tokens=1, logprobs=0).logprobs is None


@pytest.mark.parametrize(
    ("source", "settings", "words"),
    [
        *(
            (source, {}, "the source must be a name or a path")
            for source in (None, 5, ["llama"], b"llama", "")
        ),
        ("llama", {"dtype": 5}, "dtype 5"),
        ("llama", {"architecture": 5}, "`architecture` must be a name, got 5"),
        ("llama", {"adapter": 5}, "`adapter` must be a path, got 5"),
        ("llama", {"revision": 5}, "`revision` must be a name, got 5"),
        ("llama", {"context": "x"}, "`context` must be a number of tokens, got 'x'"),
    ],
)
def test_what_is_loaded_is_named_by_text(source, settings, words):
    with pytest.raises(zoo.ZooError, match=words):
        zoo.load(source, **settings)


def test_the_public_names_are_shown_before_they_are_used():
    code = "import zoo, sys; print(*dir(zoo)); print('mlx.core' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, loaded = done.stdout.splitlines()
    assert set(zoo.__all__) <= set(names.split()) and loaded == "False"


def test_a_loaded_model_is_told_in_one_line():
    told = repr(zoo.load("llama"))
    assert told.startswith("<Loaded llama, 1,049,728 parameters, from ") and len(told) < 300
    assert "\n" not in told


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_of_a_process_that_loaded_a_model_is_told_before_its_first_step():
    code = """
import os, warnings, zoo
warnings.simplefilter("ignore")
loaded = zoo.load("llama")
stream = zoo.stream(loaded, "The", max_tokens=3)
next(stream)
calls = [lambda: next(stream), lambda: zoo.generate(loaded, "The"), lambda: zoo.embed(loaded, ["a"]), lambda: zoo.load("llama")]
for call in calls:
    child = os.fork()
    if child == 0:
        try:
            call()
        except zoo.ZooError as error:
            os._exit(7 if "fork" in str(error) and "spawn" in str(error) else 8)
        os._exit(9)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(len(list(stream)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["7", "7", "7", "7", "2"], done.stderr
