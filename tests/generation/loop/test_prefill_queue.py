"""Which prompts the engine reads when: short ones before long ones, a share of the time, a prompt cache; each text as alone."""

from dataclasses import replace
from functools import cache
from itertools import pairwise
from types import SimpleNamespace

import pytest

import zoo
from tests.helpers.engine_steps import steps_alone, steps_by_handle
from zoo.errors import PromptError
from zoo.generation.loop import engine as engine_module
from zoo.generation.loop.engine import Engine
from zoo.generation.loop.prefill_queue import MOST_DEBT, PrefillShare
from zoo.generation.settings import settings_for
from zoo.testing.generation_checks import same_text
from zoo.testing.subjects import loaded_of, subject

LONG = [3 + number % 40 for number in range(90)]
ASKED = {"temperature": 0.0, "logprobs": 2, "max_tokens": 6}
NAMES = ["llama", "gemma2", "mamba", "mixtral", "lstm"]


@cache
def made(name):
    return loaded_of(subject(name))


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Chunks of 16 tokens."""
    monkeypatch.setattr("zoo.runtime.prefill_chunk", lambda: 16)


def alone(name, prompt):
    return steps_alone(made(name), prompt, **ASKED)


@pytest.mark.parametrize("name", NAMES)
def test_a_short_prompt_is_read_before_the_rest_of_a_long_one(name):
    engine = Engine(made(name))
    long = engine.add(LONG, **ASKED)
    steps = engine.step()
    assert steps == [] and engine.prefilling == 1
    short = engine.add([7, 8, 9], **ASKED)
    steps = engine.step()
    assert [owner for owner, _ in steps] == [short] and engine.prefilling == 1
    found = steps_by_handle(engine, [long, short], steps)
    same_text(found[long], alone(name, LONG), "the long text")
    same_text(found[short], alone(name, [7, 8, 9]), "the short text")


def test_a_long_prompt_has_its_turn_however_many_short_ones_come():
    engine = Engine(made("llama"))
    long, asked = engine.add(LONG, **ASKED), ASKED | {"max_tokens": 1}
    waited = 0
    while not any(owner == long for owner, _ in engine.step()):
        engine.add([5] * 16, **asked)
        engine.add([6] * 16, **asked)
        waited += 1
        assert waited <= 2 * len(LONG)


def test_a_prompt_whose_beginning_is_held_is_short():
    loaded = made("llama")
    held = zoo.PromptCache(loaded)
    zoo.generate(loaded, LONG[:80], max_tokens=1, prompt_cache=held)
    engine = Engine(loaded, prompt_cache=held)
    long = engine.add([9, *LONG], **ASKED)
    engine.step()
    follows = engine.add([*LONG[:80], 5], **ASKED)
    steps = engine.step()
    assert [owner for owner, _ in steps] == [follows]
    found = steps_by_handle(engine, [long, follows], steps)
    same_text(found[follows], alone("llama", [*LONG[:80], 5]), "the text that is short by what is held")
    same_text(found[long], alone("llama", [9, *LONG]), "the long text")


def test_sequences_that_are_read_count_as_rows():
    engine = Engine(made("llama"), rows=2)
    for prompt in (LONG, [*LONG, 4], [5, 6], [7, 8]):
        engine.add(prompt, **ASKED)
    most = 0
    while engine.busy:
        assert engine.waiting + engine.prefilling + engine.running <= 4
        engine.step()
        most = max(most, engine.prefilling + engine.running)
    assert most == 2


def test_the_counts_follow_a_sequence_and_are_exact_after_a_cancel():
    engine = Engine(made("llama"), rows=2)
    long, short, _ = (engine.add(prompt, **ASKED) for prompt in (LONG, [5, 6], [7, 8, 9, 10, 11]))

    def counts():
        return engine.waiting, engine.prefilling, engine.running

    assert counts() == (3, 0, 0)
    engine.step()
    assert counts() == (1, 0, 2)  # the short prompts were read first
    engine.cancel(short)
    assert counts() == (1, 0, 1)
    engine.step()
    engine.step()
    assert counts() == (0, 1, 1)
    waits = engine.add([5], **ASKED)
    assert counts() == (1, 1, 1)
    engine.cancel(long)
    assert counts() == (1, 0, 1)
    engine.cancel(waits)
    assert counts() == (0, 0, 1)
    engine.cancel_all()
    assert counts() == (0, 0, 0) and engine.idle


@pytest.mark.parametrize("name", NAMES)
def test_cancels_in_each_state_leave_the_others_as_they_are_alone(name):
    engine = Engine(made(name))
    running, stays = (engine.add(prompt, **ASKED) for prompt in ([5, 6, 7], [8, 9]))
    steps = engine.step()
    reading, long, waiting, short = (
        engine.add(prompt, **ASKED) for prompt in (LONG, [2, *LONG], [4, *LONG], [10, 11])
    )
    steps += engine.step()
    assert engine.prefilling == 1 and engine.waiting == 2
    for handle in (running, reading, waiting):
        engine.cancel(handle)
    found = steps_by_handle(engine, [stays, long, short, running], steps)
    for handle, prompt in ((stays, [8, 9]), (long, [2, *LONG]), (short, [10, 11])):
        same_text(found[handle], alone(name, prompt), f"the text after {prompt[:3]}")
    engine.step()
    assert engine.idle


@pytest.mark.parametrize("share", [0, -1, 1.5, True, "1/3", float("nan")])
def test_a_share_that_cannot_be_is_refused(share):
    with pytest.raises(PromptError, match="`prefill_share` must be a number above 0 and at most 1"):
        Engine(made("llama"), prefill_share=share)


def test_the_debt_is_paid_by_running_and_bounded_for_short_prompts():
    share = PrefillShare(1 / 3)
    share.add_prefill(4.0)
    assert share.debt == 4.0  # a single chunk may take long
    share.add_prefill(1.0)
    assert share.debt == 4.0
    share.add_decode(6.0)
    assert share.debt == pytest.approx(1.0)
    share.add_decode(6.0)
    assert share.debt == 0.0
    for _ in range(9):
        share.add_prefill(MOST_DEBT / 4)
    assert share.debt == MOST_DEBT
    whole = PrefillShare(1)
    whole.add_prefill(4.0)
    whole.add_decode(0.0)
    assert whole.debt == 0.0


@pytest.fixture
def ticking(monkeypatch):
    """A clock on which a pass takes a second for each token of a row; returns the passes so far, (rows, tokens)."""
    now, passes = [0.0], []
    clock = SimpleNamespace(perf_counter=lambda: now[0])
    monkeypatch.setattr(engine_module, "time", clock)
    model = type(made("llama").model)
    backbone = model.backbone

    def counted(self, tokens, *more, **others):
        passes.append(tokens.shape)
        now[0] += tokens.shape[1]
        return backbone(self, tokens, *more, **others)

    monkeypatch.setattr(model, "backbone", counted)
    monkeypatch.setattr("zoo.compiled_step.compiled_step", lambda model: None)
    return passes


@pytest.mark.parametrize(("share", "steps"), [(0.5, 16), (1.0, 1)])
def test_running_sequences_get_their_share_of_the_time(ticking, share, steps):
    engine = Engine(made("llama"), prefill_share=share)
    running = engine.add([5, 6], **ASKED | {"max_tokens": 400})
    engine.step()
    long = engine.add(LONG, **ASKED)
    del ticking[:]
    while not any(owner == long for owner, _ in engine.step()):
        pass
    chunks = [place for place, (_, tokens) in enumerate(ticking) if tokens > 1]
    between = [after - before - 1 for before, after in pairwise(chunks)]
    assert between == [steps] * 5, "steps of one second between two chunks of 16 seconds"
    engine.cancel(running)


def test_a_short_prompt_does_not_wait_for_the_debt(ticking):
    engine = Engine(made("llama"), prefill_share=1 / 3)
    running = engine.add([5, 6], **ASKED | {"max_tokens": 400})
    engine.step()
    long = engine.add(LONG, **ASKED)
    steps = engine.step()  # a chunk of the long prompt: the debt begins
    short = engine.add([7, 8, 9], **ASKED)
    steps += engine.step()
    assert short in [owner for owner, _ in steps]
    assert long not in [owner for owner, _ in steps]
    engine.cancel(running)
    found = steps_by_handle(engine, [running, long, short], steps)
    same_text(found[short], alone("llama", [7, 8, 9]), "the short text")
    same_text(found[long], alone("llama", LONG), "the long text")


def test_nothing_is_limited_while_no_sequence_runs(ticking):
    engine = Engine(made("llama"), prefill_share=0.01)
    engine.add(LONG, **ASKED)
    count = 1
    while not engine.step():
        count += 1
    assert count == len(LONG) // 16 + 1


SHARED = list(range(3, 27))
CHATS = [[*SHARED, 30 + number, 9, *range(40, 40 + number % 3)] for number in range(6)]


@pytest.fixture
def passes(monkeypatch):
    """The shapes (rows, tokens) of the passes that read prompts."""
    monkeypatch.setattr("zoo.runtime.prefill_chunk", lambda: 64)
    read, model = [], type(made("llama").model)
    backbone = model.backbone

    def noting(self, tokens, *more, **others):
        read.append(tokens.shape)
        return backbone(self, tokens, *more, **others)

    monkeypatch.setattr(model, "backbone", noting)
    return read


def run(name, prompts, held, rows=8):
    engine = Engine(made(name), rows=rows, prompt_cache=held)
    handles = [engine.add(prompt, **ASKED) for prompt in prompts]
    found = steps_by_handle(engine, handles)
    return [found[handle] for handle in handles]


def test_a_shared_beginning_is_read_once_and_the_rests_in_one_pass(passes):
    held = zoo.PromptCache(made("llama"))
    found = run("llama", CHATS, held)
    assert passes[:2] == [(1, 26), (5, 4)]
    for number, (steps, prompt) in enumerate(zip(found, CHATS, strict=True)):
        same_text(steps, alone("llama", prompt), f"chat {number}")
        assert steps[0].prompt.cached_tokens == (len(prompt) - 4 if number else 0)
    counts = held.statistics
    assert (counts.requests, counts.hits, counts.misses) == (6, 5, 1)
    assert counts.tokens_reused == sum(steps[0].prompt.cached_tokens for steps in found)


def test_prompts_of_which_nothing_is_held_are_read_in_one_pass_and_kept(passes):
    held, prompts = zoo.PromptCache(made("llama")), [[5, 6, 7], [8, 9, 10, 11], [5, 9, 8]]
    found = run("llama", prompts, held)
    assert passes[0] == (3, 4)
    for number, (steps, prompt) in enumerate(zip(found, prompts, strict=True)):
        same_text(steps, alone("llama", prompt), f"text {number}")
        assert steps[0].prompt.cached_tokens == 0 and steps[0].prompt.miss_reason
        tokens = [step.token for step in steps]
        assert held.held([*prompt, *tokens[:-1], 1]) == len(prompt) + len(tokens) - 1
    assert held.statistics.requests == held.statistics.misses == 3


@pytest.mark.parametrize("name", ["gemma2", "mamba", "mixtral"])
def test_chats_with_a_prompt_cache_are_what_they_are_alone(name):
    held = zoo.PromptCache(made(name))
    for _ in range(2):  # at first nothing is held, then all
        for number, steps in enumerate(run(name, CHATS, held, rows=4)):
            same_text(steps, alone(name, CHATS[number]), f"chat {number}")
    assert held.statistics.requests == 2 * len(CHATS)


def test_looking_what_is_held_counts_no_request():
    held = zoo.PromptCache(made("llama"))
    assert held.held(SHARED) == 0
    zoo.generate(made("llama"), SHARED, max_tokens=1, prompt_cache=held)
    assert (held.held(SHARED), held.held([*SHARED, 1]), held.held([1])) == (23, 24, 0)
    assert held.statistics.requests == 1
    assert held.match([*SHARED, 1], most=5).length == 5


def test_a_sequence_may_have_a_tokenizer_of_its_own():
    loaded = zoo.load("llama")
    token = loaded.tokenizer.special_tokens["sep_token"]
    id = loaded.tokenizer.id(token)
    visible = replace(loaded, tokenizer=loaded.tokenizer.with_visible_tokens([token]))
    engine = Engine(loaded)
    settings = settings_for(loaded, {"max_tokens": 2, "temperature": 0.0, "logit_bias": {id: 1000.0}})
    plain = engine.add_sequence("The", settings)
    own = engine.add_sequence("The", settings, loaded=visible)
    found = steps_by_handle(engine, [plain, own])
    texts = ["".join(step.text for step in found[handle]) for handle in (plain, own)]
    assert texts == ["", 2 * token]
    with pytest.raises(PromptError, match=r"`loaded`: .* is not the model of this engine"):
        engine.add_sequence([1], settings, loaded=made("llama"))
    assert not engine.busy
