"""Logits processors of callers and plugins: what they are given, where they act, and what happens when they go wrong."""

import sys

import mlx.core as mx
import numpy as np
import pytest

import zoo
from tests.helpers.chi_square import deviation
from tests.helpers.table_model import table_model
from zoo.architecture import Sampler, Setting
from zoo.errors import PluginError, PromptError, ZooError
from zoo.generation.sampling import LogitsProcessors, TokenSampler
from zoo.generation.sampling.custom import processors_from
from zoo.generation.sampling.logits import observed
from zoo.generation.settings import Constraints, Settings
from zoo.host.plugins import Plugin, load_plugins
from zoo.host.registry import Registry, default_registry

VOCAB = 6
ENDS = frozenset([5])


def no_repeats(tokens, logits):
    """No token of the text comes again."""
    logits[:, tokens] = -mx.inf
    return logits


def lifts(token, by):
    """A processor that adds to the logit of one token."""
    return lambda tokens, logits: logits.at[:, token].add(by)


@pytest.fixture
def model():
    return table_model(VOCAB, 1)


def test_it_is_called_once_for_each_token_with_the_ids_so_far(model):
    seen = []

    def watch(tokens, logits):
        assert tokens.dtype == mx.int32 and logits.dtype == mx.float32 and logits.shape == (1, VOCAB)
        seen.append(tokens.tolist())
        return logits

    model.config["eos_token_id"] = zoo.generate(model, [1, 2], max_tokens=6).tokens[3]
    answer = zoo.generate(model, [1, 2], max_tokens=9, logits_processors=watch)
    assert answer.finish_reason == "stop"
    assert seen == [[1, 2, *answer.tokens[:count]] for count in range(len(answer.tokens))]


def test_several_act_in_their_order_in_a_greedy_run_and_in_a_drawn_one(model):
    first, second = lifts(0, 50.0), lambda tokens, logits: mx.where(logits > 20, 0.0, logits)
    for settings in ({}, dict(temperature=0.01, seed=1)):
        found = [
            zoo.generate(model, [1], max_tokens=4, logits_processors=each, **settings).tokens
            for each in ([first, second], [second, first])
        ]
        assert found[1] == [0] * 4 != found[0]


@pytest.mark.slow
def test_drawn_tokens_have_the_distribution_of_the_processed_logits(model):
    processor = lifts(2, 1.5)
    wanted = np.array(mx.softmax(processor(None, model.model.table[3][None]) / 1.3, axis=-1))[0]
    drawn = [
        zoo.generate(
            model, [3], max_tokens=1, temperature=1.3, seed=seed, logits_processors=[processor]
        ).tokens[0]
        for seed in range(600)
    ]
    assert deviation(np.bincount(drawn, minlength=VOCAB), wanted) < 4


def test_each_sequence_of_a_batch_has_its_own_tokens(model):
    prompts = [[1], [2, 3], [4, 0, 1]]
    settings = dict(max_tokens=3, logits_processors=[no_repeats])
    together = [answer.tokens for answer in zoo.batch(model, prompts, **settings)]
    assert together == [zoo.generate(model, prompt, **settings).tokens for prompt in prompts]
    for prompt, tokens in zip(prompts, together, strict=True):
        assert len({*prompt, *tokens}) == len(prompt) + 3


def test_drafts_leave_the_text_as_it_is():
    model = table_model(40, 2)
    settings = dict(max_tokens=20, logits_processors=[no_repeats])
    alone = zoo.generate(model, [1, 2, 1, 2], **settings).tokens
    for drafts in (dict(prompt_lookup=3), dict(draft_model=table_model(40, 2))):
        assert zoo.generate(model, [1, 2, 1, 2], **settings, **drafts).tokens == alone


def test_several_beams_share_the_processors(model):
    settings = dict(max_tokens=3, beams=3, return_sequences=3)
    banned = zoo.generate(
        model, [1], logits_processors=[lambda _, logits: logits.at[:, 2].add(-1e9)], **settings
    )
    model.generation_config = {"suppress_tokens": [2]}
    suppressed = zoo.generate(model, [1], **settings)
    assert [each["tokens"] for each in banned.candidates] == [
        each["tokens"] for each in suppressed.candidates
    ]
    model.generation_config = {}
    unique = zoo.generate(model, [1], logits_processors=no_repeats, **settings)
    assert all(len({1, *each["tokens"]}) == 4 for each in unique.candidates)


def test_end_tokens_are_lifted_before_and_a_grammar_acts_after():
    order = [
        stage.name
        for stage in zoo.trace(
            zoo.load("llama"),
            "The",
            max_tokens=1,
            repetition_penalty=1.2,
            min_tokens=1,
            exponential_decay_length_penalty=(0, 1.1),
            regex="[A-Z]+",
            logits_processors=[no_repeats],
        )
        .choices()[0]
        .stages
    ]
    assert order == [
        *("model", "repetition_penalty", "min_tokens", "exponential_decay_length_penalty"),
        *("no_repeats", "regex"),
    ]


def test_a_function_that_changes_its_argument_changes_no_earlier_stage():
    settings = Settings(logits_processors=(no_repeats,))
    stages = []
    with observed(lambda _: lambda found, _: stages.extend(found)):
        custom = processors_from(default_registry(), settings)
        processors = LogitsProcessors(settings, Constraints(ENDS, (1, 4)), VOCAB, custom=custom)
        sampler = TokenSampler(settings, processors)
        sampler.update(sampler.choose(mx.arange(VOCAB, dtype=mx.float32)[None]).item())
    model, changed = (np.array(stage.logits)[0] for stage in stages)
    assert model.tolist() == [0, 1, 2, 3, 4, 5]
    assert changed.tolist() == [0, -np.inf, 2, 3, -np.inf, 5]


def breaks(tokens, logits):
    raise ValueError("no idea")


def shrinks(tokens, logits):
    return logits[:, :3]


def halves(tokens, logits):
    return logits.astype(mx.float16)


def forgets(tokens, logits):
    """Gives nothing back."""


def removes_all(tokens, logits):
    return mx.full(logits.shape, -mx.inf)


class Undefined:
    """An object that is called."""

    def __call__(self, tokens, logits):
        return logits * mx.nan


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (breaks, r"^logits processor breaks: ValueError: no idea$"),
        (shrinks, r"^logits processor shrinks returned \(1, 3\), expected logits \(1, 6\) of float32$"),
        (halves, r"^logits processor halves returned float16, expected logits \(1, 6\) of float32$"),
        (forgets, r"^logits processor forgets returned NoneType, expected logits \(1, 6\) of float32$"),
        (removes_all, r"^token 1: no token is left to choose: logits processor removes_all$"),
        (Undefined(), r"^token 1: no token is left to choose: logits processor Undefined$"),
    ],
)
@pytest.mark.parametrize("more", [{}, dict(prompt_lookup=2), dict(temperature=1.0)], ids=str)
def test_one_that_goes_wrong_is_named(model, function, said, more):
    with pytest.raises(ZooError, match=said):
        zoo.generate(model, [1, 2, 1, 2], max_tokens=3, logits_processors=[no_repeats, function], **more)


def test_where_no_token_is_left_the_first_that_removed_all_is_named(model):
    keeps = lambda tokens, logits: logits  # noqa: E731
    everything = {token: -float("inf") for token in range(VOCAB)}
    for processors, more, named in (
        ([keeps, removes_all, keeps], dict(logit_bias={0: -float("inf")}), "logits processor removes_all$"),
        ([keeps, keeps], dict(logit_bias=everything), "`logit_bias`$"),
    ):
        with pytest.raises(ZooError, match=f"no token is left to choose: {named}"):
            zoo.generate(model, [1], max_tokens=2, logits_processors=processors, **more)


def test_one_that_goes_wrong_ends_no_other_sequence(model):
    def fails_late(tokens, logits):
        return breaks(tokens, logits) if tokens.size > 3 else logits

    engine = zoo.Engine(model)
    bad = engine.add([1], max_tokens=8, logits_processors=[fails_late])
    good = engine.add([1], max_tokens=8)
    found = {bad: [], good: []}
    for handle, step in engine.run():
        found[handle].append(step)
    assert found[bad][-1].finish_reason == "error" and "fails_late" in str(found[bad][-1].error)
    assert [step.token for step in found[bad][:-1]] == [step.token for step in found[good][:3]]
    assert [step.token for step in found[good]] == zoo.generate(model, [1], max_tokens=8).tokens


@pytest.mark.parametrize("wrong", ["no_repeats", 3, [no_repeats, None], {"a": 1}])
def test_what_is_no_function_is_refused(model, wrong):
    with pytest.raises(PromptError, match="`logits_processors` must be a function or a list of them, got"):
        zoo.stream(model, [1], logits_processors=wrong)
    with pytest.raises(PromptError, match="`logits_processors` must be a function"):
        zoo.Engine(model).add([1], logits_processors=wrong)


def lift(tokens, logits, token, by):
    """A plugin's processor: adds to the logit of a token until the text has it."""
    return logits if token in tokens.tolist() else logits.at[:, token].add(by)


def narrow(logits):
    return logits


@pytest.fixture
def extended(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "zoo_lifts", sys.modules[__name__])
    settings = (Setting("token", int, minimum=0), Setting("by", float, 30.0))
    samplers = [
        Sampler("lift", "zoo_lifts:lift", settings, processor=True),
        Sampler("narrow", "zoo_lifts:narrow"),
        Sampler("broken", "zoo_lifts:breaks", processor=True),
    ]
    plugin = Plugin("p", records={"zoo_samplers": samplers})
    model.registry = Registry([*load_plugins({"ZOO_PLUGINS": "mlx-zoo"}), plugin])
    return model


def test_a_plugins_processor_acts_in_greedy_runs_and_asks_for_no_draw(extended):
    settings = dict(max_tokens=4, samplers={"lift": {"token": 4}})
    found = zoo.generate(extended, [1], **settings).tokens
    assert found[0] == 4 and found == zoo.generate(extended, [1], **settings).tokens
    # From there on it changes nothing.
    assert found[1:] == zoo.generate(extended, [1, 4], max_tokens=3).tokens
    drawn = zoo.generate(extended, [1], temperature=0.5, seed=1, **settings).tokens
    assert drawn[0] == 4
    searched = zoo.generate(extended, [1], beams=3, **settings).tokens
    assert 4 in searched
    with pytest.raises(PluginError, match=r"^sampler broken: ValueError: no idea$"):
        zoo.generate(extended, [1], samplers={"broken": {}})


def test_a_plugins_filter_cannot_be_given_with_several_beams(extended):
    with pytest.raises(PromptError, match="`samplers` cannot be given with several `beams`"):
        zoo.generate(extended, [1], beams=3, temperature=0, samplers={"lift": {"token": 1}, "narrow": {}})


def test_a_plugins_processor_is_not_stateful():
    with pytest.raises(PluginError, match="a processor is not stateful"):
        Sampler("x", "a.b:c", stateful=True, processor=True)
    with pytest.raises(PluginError, match="processor is True or False"):
        Sampler("x", "a.b:c", processor="yes")


def test_a_sampler_that_declares_it_is_given_the_tokens_to_keep():
    llama = zoo.load("llama")

    def kept(**settings):
        trace = zoo.trace(llama, "The", max_tokens=1, seed=1, temperature=1.0, **settings)
        return trace.choices()[0].stages[-1].kept

    for name in ("epsilon", "eta"):
        assert kept(samplers={name: {"cutoff": 1.0}}) < 3
        assert kept(samplers={name: {"cutoff": 1.0}}, min_tokens_to_keep=5) == 5
        assert kept(samplers={name: {"cutoff": 1.0, "min_tokens_to_keep": 3}}, min_tokens_to_keep=5) == 3
