"""The loop: how many passes it costs, where it ends, what it yields."""

import warnings

import mlx.core as mx
import pytest

import zoo
from zoo.errors import PromptError
from zoo.loading import Loaded
from zoo.testing import subject

PROMPT = [5, 6, 7, 8, 9]


class Counting:
    """A model that counts its passes, and the positions that its head is given."""

    def __init__(self, model):
        self.model, self.passes, self.headed = model, [], []

    def __getattr__(self, name):
        return getattr(self.model, name)

    def backbone(self, tokens, cache=None, *rest, **more):
        self.passes.append(tokens.shape[1])
        return self.model.backbone(tokens, cache, *rest, **more)

    def head(self, hidden):
        self.headed.append(hidden.shape[1])
        return self.model.head(hidden)


@pytest.fixture(scope="module")
def made():
    return subject("llama")


@pytest.fixture
def loaded(made, tmp_path):
    return Loaded(Counting(made.model), None, made.architecture, made.recipe, {}, tmp_path)


def test_n_tokens_cost_n_passes(loaded):
    steps = list(zoo.stream(loaded, PROMPT, max_tokens=7))
    assert len(steps) == 7
    assert loaded.model.passes == [5, 1, 1, 1, 1, 1, 1]
    assert [step.finish_reason for step in steps] == [None] * 6 + ["length"]


def test_an_end_token_wastes_one_pass_at_most(loaded):
    free = zoo.generate(loaded, PROMPT, max_tokens=7).tokens
    end = free[3]
    loaded.model.passes.clear()
    loaded.generation_config["eos_token_id"] = [end, 9999]
    done = zoo.generate(loaded, PROMPT, max_tokens=7)
    first = free.index(end)
    assert done.tokens == free[: first + 1]
    assert done.finish_reason == "stop"
    assert len(loaded.model.passes) <= first + 2


def test_the_head_works_on_the_last_position_only(loaded):
    zoo.generate(loaded, PROMPT, max_tokens=3)
    assert loaded.model.headed == [1, 1, 1]


@pytest.mark.parametrize("settings", [{}, {"beams": 2}, {"penalty_alpha": 0.5, "top_k": 4}])
def test_a_prompt_beyond_the_context_is_warned_of(settings):
    pocket = zoo.load("llama")
    context = pocket.recipe.context
    with pytest.warns(
        UserWarning, match=f"the prompt has {context + 1} tokens, more than the {context} the model"
    ):
        zoo.generate(pocket, [5] * (context + 1), max_tokens=1, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        zoo.generate(pocket, [5] * context, max_tokens=1, **settings)


def test_a_long_prompt_is_read_in_chunks(loaded):
    whole = zoo.generate(loaded, PROMPT * 4, max_tokens=4).tokens
    loaded.model.passes.clear()
    assert zoo.generate(loaded, PROMPT * 4, max_tokens=4, prefill_chunk=8).tokens == whole
    assert loaded.model.passes == [8, 8, 4, 1, 1, 1]


def test_beams_read_a_long_prompt_in_chunks_too(loaded):
    settings = dict(max_tokens=4, beams=3)
    whole = list(zoo.stream(loaded, PROMPT * 4, **settings))
    assert loaded.model.passes == [20, 1, 1, 1]
    loaded.model.passes.clear()
    loaded.model.headed.clear()
    seen = []
    chunked = zoo.stream(
        loaded, PROMPT * 4, prefill_chunk=8, report=lambda *read: seen.append(read), **settings
    )
    assert list(chunked) == whole
    assert loaded.model.passes == [8, 8, 4, 1, 1, 1]
    assert loaded.model.headed == [1, 1, 1, 1], "the head works on the last position only"
    assert seen[-1] == (16, 20) and sorted(seen) == seen


def test_greedy_tokens_and_logprobs_are_the_full_forwards(loaded):
    done = zoo.generate(loaded, PROMPT, max_tokens=6, logprobs=True)
    logits = loaded.model.model(mx.array([PROMPT + done.tokens]))[0, len(PROMPT) - 1 : -1]
    expected = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    assert mx.argmax(logits, axis=-1).tolist() == done.tokens
    for place, (token, logprob) in enumerate(zip(done.tokens, done.logprobs, strict=True)):
        assert abs(expected[place, token].item() - logprob) < 1e-4


def test_logprobs_are_left_out_unless_asked(loaded):
    assert next(zoo.stream(loaded, PROMPT, max_tokens=1)).logprob is None


def test_a_seed_makes_draws_repeatable(loaded):
    def draw(seed):
        return zoo.generate(loaded, PROMPT, max_tokens=12, temperature=1.0, seed=seed).tokens

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_the_checkpoints_defaults_hold_until_a_setting_is_given(loaded):
    greedy = zoo.generate(loaded, PROMPT, max_tokens=8).tokens
    loaded.generation_config |= {"do_sample": True, "temperature": 5.0}
    assert zoo.generate(loaded, PROMPT, max_tokens=8, seed=0).tokens != greedy
    assert zoo.generate(loaded, PROMPT, max_tokens=8, temperature=0.0).tokens == greedy


def test_a_default_that_cannot_be_is_named_with_its_file(loaded, monkeypatch):
    monkeypatch.setitem(loaded.generation_config, "do_sample", True)
    monkeypatch.setitem(loaded.generation_config, "top_k", ["many"])
    with pytest.raises(PromptError, match=r"generation_config\.json: top_k must"):
        zoo.generate(loaded, PROMPT, max_tokens=2)


@pytest.mark.parametrize(
    ("prompt", "settings", "word"),
    [
        ([], {}, "empty"),
        ([5, 99999], {}, "99999"),
        ([-1], {}, "-1"),
        (PROMPT, {"max_tokens": 0}, "`max_tokens`"),
        (PROMPT, {"temperature": -0.5}, "`temperature`"),
        (PROMPT, {"top_p": 0.0}, "`top_p`"),
        (PROMPT, {"beam_width": 3}, "`beam_width`"),
        ("text", {}, "no tokenizer"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(loaded, prompt, settings, word):
    with pytest.raises(PromptError, match=word):
        zoo.stream(loaded, prompt, **settings)
    assert loaded.model.passes == []


def test_learned_positions_bound_prompt_and_answer():
    made = subject("gpt2")
    context = made.recipe.context
    loaded = Loaded(made.model, None, made.architecture, made.recipe, {}, None)
    with pytest.raises(PromptError, match=str(context)):
        zoo.stream(loaded, [1] * (context + 1))
    done = zoo.generate(loaded, [1] * (context - 2), max_tokens=50)
    assert len(done.tokens) == 3  # the last token chosen needs no position
    assert done.finish_reason == "length"
