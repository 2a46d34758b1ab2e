"""What a checkpoint's generation_config.json asks for is done, or warned of by name."""

import warnings
from types import SimpleNamespace

import mlx.core as mx
import pytest

import zoo
from zoo.architecture import Strategy
from zoo.blocks.model import Model
from zoo.errors import PromptError
from zoo.generation.sampling import TokenSampler
from zoo.generation.settings import ignored_keys
from zoo.host.core import zoo_strategies
from zoo.loading import Loaded
from zoo.testing import subject

# 0 ends a text. The token after each, by its logits: 3 → 1 → 2 → 1 → 2 …, and the end is always the second choice.
TABLE = [[9.0, 0, 0, 0], [4.0, 1.0, 5.0, 0], [4.0, 5.0, 1.0, 0], [4.0, 5.0, 2.0, 1.0]]
PROMPT = [3]


class Table(Model):
    """A model whose logits depend on the last token alone."""

    def __init__(self, table):
        self.table, self.passes = mx.array(table), []

    def make_cache(self, policy=None):
        return []

    def backbone(self, tokens, cache=None):
        self.passes.append(tokens.shape)
        return tokens[..., None]

    def head(self, tokens):
        return self.table[tokens[..., 0]]


@pytest.fixture(scope="module")
def made():
    return subject("llama")


@pytest.fixture
def loaded(made, tmp_path):
    recipe = made.recipe.change(embedding=dict(vocab=4), head=dict(vocab=4))
    return Loaded(Table(TABLE), None, made.architecture, recipe, {"eos_token_id": 0}, tmp_path)


def generated(loaded, prompt=PROMPT, max_tokens=5, values=None, **settings):
    loaded.generation_config = {"eos_token_id": 0} | (values or {})
    return zoo.generate(loaded, prompt, max_tokens=max_tokens, **settings).tokens


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, [1, 2, 1, 2, 1]),
        ({"repetition_penalty": 2.0}, [1, 2, 0]),  # 5 / 2 < 4 for what was seen
        ({"no_repeat_ngram_size": 2}, [1, 2, 1, 0]),
        ({"bad_words_ids": [[1, 2]]}, [1, 0]),
        ({"suppress_tokens": [2]}, [1, 0]),
        ({"begin_suppress_tokens": [1]}, [0]),
        ({"forced_eos_token_id": 3}, [1, 2, 1, 2, 3]),
        ({"suppress_tokens": [2], "min_new_tokens": 3}, [1, 1, 1, 0]),
        ({"suppress_tokens": [2], "min_length": 3}, [1, 1, 0]),  # the prompt's token counts
        ({"forced_bos_token_id": 2}, [2, 1, 2, 1, 2]),
        # The likeliest token reaches a typical mass of 0.1 only where it is near the entropy, which the second one is.
        # The end's logit is 4, after two tokens 4 · 1.1, after four 4 · 1.1³.
        ({"exponential_decay_length_penalty": [1, 1.1]}, [1, 2, 1, 2, 0]),
        ({"exponential_decay_length_penalty": [1, 1.2]}, [1, 2, 1, 0]),
        ({"exponential_decay_length_penalty": [1, 1.3]}, [1, 2, 0]),
        ({"exponential_decay_length_penalty": [1, 1.3], "min_new_tokens": 4}, [1, 2, 1, 2, 0]),
        ({"do_sample": True, "typical_p": 0.1, "temperature": 0.05}, [1, 2, 1, 2, 1]),
    ],
    ids=str,
)
def test_constraints_hold_when_tokens_come_one_by_one(loaded, values, expected):
    assert generated(loaded, values=values) == expected
    # The loop of the beams' strategy is the same one.
    assert generated(loaded, values=values, strategy="beam") == expected


def test_the_guidance_of_a_checkpoint_holds(loaded):
    # The logits depend on the last token alone: after the first one both prompts have the same, and nothing changes.
    assert generated(loaded, values={"guidance_scale": 0.0}) == [1, 2, 1, 2, 1]
    assert generated(loaded, values={"guidance_scale": 0.0}, negative_prompt=[1]) == [2, 1, 2, 1, 2]
    assert generated(loaded, values={"guidance_scale": 0.0}, negative_prompt=[1], guidance_scale=2.0)[0] == 1
    with pytest.raises(PromptError, match="`negative_prompt` needs a `guidance_scale`"):
        generated(loaded, values={"guidance_scale": 3.0}, negative_prompt=[2], guidance_scale=1.0)
    with pytest.raises(PromptError, match=r"^generation_config.json: guidance_scale must be a number from"):
        generated(loaded, values={"guidance_scale": "much"})


def test_they_hold_for_a_draw(loaded):
    for seed in range(5):
        drawn = generated(loaded, values={"suppress_tokens": [2, 3]}, temperature=50.0, seed=seed)
        assert set(drawn) <= {0, 1}


def test_logprobs_stay_the_models_own(loaded):
    loaded.generation_config = {"suppress_tokens": [1]}
    step = next(zoo.stream(loaded, PROMPT, max_tokens=1, logprobs=True))
    logits = mx.array(TABLE[3])
    assert step.token == 0
    assert step.logprob == pytest.approx((logits - mx.logsumexp(logits))[0].item(), abs=1e-5)


def test_no_end_comes_before_the_least_number_of_tokens(loaded):
    values = {"suppress_tokens": [2]}
    assert generated(loaded, values=values) == [1, 0]
    assert generated(loaded, values=values, min_tokens=3) == [1, 1, 1, 0]
    assert generated(loaded, values=values | {"min_new_tokens": 4}, min_tokens=1) == [1, 0]  # the argument's
    # By the strategy that serves in any case, which also takes what beam search does not.
    assert generated(loaded, values=values, min_tokens=3, stop=["x"]) == [1, 1, 1, 0]
    with pytest.raises(PromptError, match=r"`min_tokens` must be from 0 to 2, the most new tokens, got 3"):
        zoo.stream(loaded, PROMPT, max_tokens=2, min_tokens=3)


@pytest.mark.parametrize(
    ("values", "count"),
    [
        ({"max_new_tokens": 3}, 3),
        ({"max_length": 3}, 2),  # the prompt's token counts
        ({"max_new_tokens": 4, "max_length": 2}, 4),
        ({}, 256),
        ({"max_length": 4000}, 256),
    ],
)
def test_the_checkpoint_says_how_long_a_text_may_be(loaded, values, count):
    assert len(generated(loaded, max_tokens=None, values=values)) == count
    assert len(generated(loaded, max_tokens=7, values=values)) == 7


def test_a_prompt_longer_than_the_checkpoint_allows_says_what_to_set(loaded):
    loaded.generation_config = {"max_length": 3}
    with pytest.raises(PromptError, match=r"4 tokens .* allows 3 in all \(max_length\): set `max_tokens`"):
        zoo.stream(loaded, [3, 1, 2, 1])


def test_a_stop_text_of_the_checkpoint_holds_until_one_is_given(loaded):
    letters = SimpleNamespace(add=lambda id: "xyzw"[id], finish=lambda: "")
    loaded.tokenizer = SimpleNamespace(
        detokenizer=lambda: letters, eos_ids=frozenset([0]), languages=None, special_tokens={}
    )
    loaded.generation_config = {"stop_strings": ["zy"]}
    assert zoo.generate(loaded, PROMPT, max_tokens=5).text == "y"
    assert zoo.generate(loaded, PROMPT, max_tokens=5, stop="yzyz").text == ""
    loaded.generation_config = {"stop_strings": [5]}
    with pytest.raises(PromptError, match="stop_strings must be a list of texts"):
        zoo.stream(loaded, PROMPT)


def test_without_constraints_no_step_asks_for_them(loaded, monkeypatch):
    """What holds nothing back must cost nothing."""

    def fail(*arguments):
        raise AssertionError("the scores were asked for")

    monkeypatch.setattr(TokenSampler, "_run", fail)
    assert generated(loaded) == [1, 2, 1, 2, 1]
    with pytest.raises(AssertionError, match="asked"):
        generated(loaded, values={"suppress_tokens": [2]})


@pytest.mark.parametrize("values", [{}, {"suppress_tokens": [2]}, {"no_repeat_ngram_size": 2}])
def test_a_gpu_begins_the_next_pass_before_a_token_is_read(loaded, values, ahead):
    loaded.generation_config = values
    steps = zoo.stream(loaded, PROMPT, max_tokens=5)
    next(steps)
    assert len(loaded.model.passes) == (2 if ahead else 1)
    next(steps)
    assert len(loaded.model.passes) == (3 if ahead else 2)


def test_a_text_ends_without_another_pass(loaded, ahead):
    loaded.generation_config = {"eos_token_id": 2}
    assert zoo.generate(loaded, PROMPT, max_tokens=5).tokens == [1, 2]
    assert len(loaded.model.passes) == (3 if ahead else 2)


def test_what_a_strategy_does_not_do_is_warned_of_once_by_name(loaded):
    values = dict(diversity_penalty=0.5, num_beam_groups=1, num_beams=4, transformers_version="5", odd=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        generated(loaded, values=values)
        generated(loaded, values=values)
    assert len(caught) == 1 and "generation_config.json: ignored, autoregressive" in str(caught[0].message)
    assert str(caught[0].message).rpartition(": ")[2] == "diversity_penalty, num_beams, odd"
    with pytest.warns(UserWarning, match=": odd$"):
        generated(loaded, values=values, beams=2)
    with pytest.warns(UserWarning, match=": num_return_sequences$"):
        generated(loaded, values={"num_return_sequences": 3})


def test_nothing_is_said_of_what_is_done_or_changes_nothing(loaded):
    done = dict(repetition_penalty=1.1, min_new_tokens=1, suppress_tokens=[3], bad_words_ids=[])
    without_a_draw_or_beams = dict(temperature=0.6, top_p=0.9, epsilon_cutoff=0.2, length_penalty=2.0)
    changes_nothing = dict(
        bos_token_id=1, pad_token_id=0, use_cache=True, _from_model_config=True, max_time=None
    )
    values = done | without_a_draw_or_beams | changes_nothing
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        generated(loaded, values=values)


def test_a_draw_is_asked_for_by_do_sample():
    values = {"temperature": 0.6, "typical_p": 0.2, "eta_cutoff": 0.1, "top_k": 5}
    own = {strategy.name: strategy for strategy in zoo_strategies()}["autoregressive"].setting_names
    assert ignored_keys(values, own) == []
    assert ignored_keys(values | {"do_sample": True}, own) == ["eta_cutoff"]
    assert ignored_keys(values | {"do_sample": True}, ()) == [*values, "do_sample"]


def test_keys_of_a_config_that_describe_the_model_are_left_alone(loaded):
    loaded.config = {"hidden_size": 64, "odd": 1, "eos_token_id": 0, "repetition_penalty": 2.0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert zoo.generate(loaded, PROMPT, max_tokens=5).tokens == [1, 2, 0], (
            "older folders have the keys there"
        )
    loaded.config |= {"diversity_penalty": 0.5}
    with pytest.warns(UserWarning, match=": config.json: ignored, .*: diversity_penalty$"):
        zoo.generate(loaded, PROMPT, max_tokens=5)


def test_a_strategy_follows_the_keys_whose_settings_it_takes():
    strategy = Strategy("x", "a:b", ("generate",), ("max_tokens", "top_p"))
    values = {"max_new_tokens": 5, "max_length": 9, "do_sample": True, "top_p": 0.5, "top_k": 5}
    assert ignored_keys(values, strategy.setting_names) == ["do_sample", "top_k"]
