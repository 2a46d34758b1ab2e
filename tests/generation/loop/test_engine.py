"""The engine: texts join, leave and are cancelled at random, and each is as it would be alone."""

import gc
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Event

import mlx.core as mx
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

import zoo
from tests.helpers.parameters import ordinary
from tests.helpers.waiting import PATIENCE
from zoo import runtime
from zoo.errors import PromptError
from zoo.generation.loop.engine import Engine
from zoo.generation.settings import Settings
from zoo.testing.generation_checks import same_text, text_beside_others_equals_the_text_alone
from zoo.testing.subjects import loaded_of, subject

PROMPTS = [[5], [7, 8, 9], [1, 2, 3, 4, 5, 6, 7, 8], list(range(3, 40)), [30, 31, 30, 31, 30]]
WAYS = [
    {},
    {"temperature": 1.0, "seed": 13},
    {"temperature": 0.7, "top_k": 5, "seed": 14},
    {"min_tokens": 1},
    {"prefill_chunk": 4},
]


@cache
def made(name):
    return loaded_of(subject(name))


@cache
def alone(name, prompt, way, count):
    engine = Engine(made(name), rows=1)
    engine.add(PROMPTS[prompt], **asked(way, count))
    return [step for _, step in engine.run()]


def asked(way, count):
    return {"temperature": 0.0, "logprobs": 2, "max_tokens": count} | WAYS[way]


class Texts(RuleBasedStateMachine):
    """Any order of adding, stepping and cancelling."""

    name = "llama"

    def __init__(self):
        super().__init__()
        self.engine = Engine(made(self.name), rows=3)
        self.asked, self.found, self.cancelled = {}, {}, set()

    @rule(
        prompt=st.integers(0, len(PROMPTS) - 1),
        way=st.integers(0, len(WAYS) - 1),
        count=st.sampled_from([1, 2, 5, 9]),
    )
    def add(self, prompt, way, count):
        handle = self.engine.add(PROMPTS[prompt], **asked(way, count))
        self.asked[handle], self.found[handle] = (prompt, way, count), []

    @rule()
    def step(self):
        for handle, step in self.engine.step():
            assert handle not in self.cancelled
            self.found[handle].append(step)

    @precondition(lambda self: any(self.left()))
    @rule(data=st.data())
    def cancel(self, data):
        handle = data.draw(st.sampled_from(list(self.left())))
        self.engine.cancel(handle)
        self.cancelled.add(handle)

    def left(self):
        return [
            handle
            for handle, steps in self.found.items()
            if handle not in self.cancelled and not (steps and steps[-1].finish_reason)
        ]

    def teardown(self):
        while self.engine.busy:
            self.step()
        self.engine.step()  # rows of cancelled texts leave
        assert self.engine.idle
        for handle, steps in self.found.items():
            expected = alone(self.name, *self.asked[handle])
            if handle in self.cancelled:
                expected = expected[: len(steps)]
            same_text(steps, expected, f"text {handle}")


class RecurrentTexts(Texts):
    name = "mamba"


class TextsAhead(Texts):
    """With passes that begin before the tokens before them are given, as on a GPU."""

    @rule()
    def step(self):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runtime, "evaluates_in_background", lambda: True)
            super().step()


class RecurrentTextsAhead(TextsAhead):
    name = "mamba"


class WindowedTexts(Texts):
    name = "gpt-oss"


QUICK = settings(
    max_examples=5,
    stateful_step_count=16,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
TestTexts = Texts.TestCase
TestRecurrentTexts = RecurrentTexts.TestCase
TestWindowedTexts = pytest.mark.slow(WindowedTexts.TestCase)
TestTextsAhead = TextsAhead.TestCase
TestRecurrentTextsAhead = pytest.mark.slow(RecurrentTextsAhead.TestCase)
for case in (TestTexts, TestRecurrentTexts, TestWindowedTexts, TestTextsAhead, TestRecurrentTextsAhead):
    case.settings = QUICK
del case


@pytest.mark.slow
def test_500_texts_leave_nothing_behind():
    loaded = made("llama")
    engine = Engine(loaded, rows=16)
    handles = {}
    kinds = [(number % len(PROMPTS), number % len(WAYS), 1 + number % 3) for number in range(500)]
    for kind in kinds[:20]:
        alone("llama", *kind)
    gc.collect()
    before = mx.get_active_memory()
    found = {}
    for number, kind in enumerate(kinds):
        handles[engine.add(PROMPTS[kind[0]], **asked(kind[1], kind[2]))] = kind
        if number % 25 == 24:
            engine.cancel(max(handles))
            handles.pop(max(handles))
        for handle, step in engine.step():
            found.setdefault(handle, []).append(step)
    for handle, step in engine.run():
        found.setdefault(handle, []).append(step)
    engine.step()
    assert engine.idle
    assert found.keys() == handles.keys()
    for handle, kind in handles.items():
        same_text(found[handle], alone("llama", *kind), f"text {handle}, {kind}")
    del found
    gc.collect()
    mx.synchronize()
    assert mx.get_active_memory() <= before + 2**16


def test_a_long_prompt_is_read_while_others_go_on():
    engine = Engine(made("llama"))
    first = engine.add([5, 6], max_tokens=40, temperature=0.0)
    engine.step()
    second = engine.add(list(range(3, 43)), max_tokens=2, prefill_chunk=300, temperature=0.0)
    owners = []
    while engine.busy:
        owners.append({handle for handle, _ in engine.step()})
    assert all(first in owner for owner in owners[:30])
    assert any(second in owner for owner in owners)


def test_what_is_refused_is_refused_before_anything_runs():
    engine = Engine(made("llama"))
    with pytest.raises(PromptError, match="`nonsense`: there is no such setting"):
        engine.add([1], nonsense=1)
    with pytest.raises(PromptError, match="the prompt is empty"):
        engine.add([])
    with pytest.raises(PromptError, match="`rows` must be a whole number"):
        Engine(made("llama"), rows=0)
    with pytest.raises(PromptError, match="there is no text 7"):
        engine.cancel(7)
    assert not engine.busy
    with pytest.raises(PromptError, match=r"prompts\[1\]: the prompt is empty"):
        zoo.batch(made("llama"), [[1], []])


def test_time_ends_a_text():
    step = zoo.generate(made("llama"), [1, 2], max_tokens=50, max_time=0.0)
    assert step.finish_reason == "time"
    assert len(step.tokens) == 1


def test_stop_tokens_end_a_text():
    free = zoo.generate(made("llama"), PROMPTS[3], max_tokens=7).tokens
    found = zoo.generate(made("llama"), PROMPTS[3], max_tokens=7, stop_tokens=[free[2]])
    assert found.tokens == free[: free.index(free[2]) + 1]
    assert found.finish_reason == "stop"


def test_the_prompts_log_probabilities_are_those_of_one_pass():
    loaded, prompt = made("llama"), PROMPTS[3]
    scores = loaded.model(mx.array([prompt]))[0]
    expected = scores - mx.logsumexp(scores, axis=-1, keepdims=True)
    found = zoo.generate(loaded, prompt, max_tokens=1, prompt_logprobs=3, prefill_chunk=5).prompt
    assert len(found.logprobs) == len(found.alternatives) == len(prompt) - 1
    for place, (token, logprob) in enumerate(zip(prompt[1:], found.logprobs, strict=True)):
        assert logprob == pytest.approx(expected[place, token].item(), abs=1e-4)
        assert max(found.alternatives[place].values()) == pytest.approx(
            expected[place].max().item(), abs=1e-4
        )


POLICIES = [
    {"max_kv_size": 8, "keep": 2},
    {"kv_bits": 8},
    {"key_bits": 8, "value_bits": 4, "kv_start": 4},
    {"max_kv_size": 6, "keep": 1, "kv_bits": 8},
]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: "-".join(policy))
@pytest.mark.parametrize(
    "name", ordinary(("llama", "gemma2", "gpt2", "gpt-oss", "deepseek-v3"), "llama", "gpt-oss")
)
def test_policies_hold_in_batches(name, policy):
    made = loaded_of(subject(name))
    asked = Settings(**policy).policy()
    if reason := made.model.refused(made.model.make_cache(asked), asked):
        with pytest.raises(PromptError) as error:
            zoo.generate(made, [1, 2, 3], **policy)
        assert str(error.value) == reason
        return
    text_beside_others_equals_the_text_alone(subject(name), **policy)


def test_an_error_of_one_text_leaves_the_others():
    loaded, vocab = made("llama"), made("llama").recipe.embedding.vocab
    alike = Engine(loaded)
    alike.add(PROMPTS[3], max_tokens=4, temperature=0.0, logprobs=2)
    expected = [step for _, step in alike.run()]
    engine = Engine(loaded)
    good = engine.add(PROMPTS[3], max_tokens=4, temperature=0.0, logprobs=2)
    # Every token is removed: none is left to choose.
    bad = engine.add(PROMPTS[1], max_tokens=4, logit_bias={token: float("-inf") for token in range(vocab)})
    found = list(engine.run())
    same_text([step for handle, step in found if handle == good], expected, "the text beside")
    (failed,) = [step for handle, step in found if handle == bad]
    assert failed.finish_reason == "error" and failed.token is None
    engine.step()
    assert engine.idle
    with pytest.raises(zoo.ZooError, match="token 1: "):
        zoo.generate(
            loaded, PROMPTS[1], max_tokens=4, logit_bias={token: float("-inf") for token in range(vocab)}
        )


def test_sources_that_wait_together_are_read_in_one_pass(monkeypatch):
    loaded = made("transformer")
    read, encode = [], type(loaded.model).encode

    def noting(model, tokens, mask=None):
        read.append(tokens.shape[0])
        return encode(model, tokens, mask)

    monkeypatch.setattr(type(loaded.model), "encode", noting)
    engine = Engine(loaded, rows=4)
    handles = [engine.add(prompt, temperature=0.0, max_tokens=6, logprobs=2) for prompt in PROMPTS]
    found = {handle: [] for handle in handles}
    for handle, step in engine.run():
        found[handle].append(step)
    assert read == [4, 1]  # of five, four run at once
    for number, handle in enumerate(handles):
        engine = Engine(loaded, rows=1)
        engine.add(PROMPTS[number], temperature=0.0, max_tokens=6, logprobs=2)
        same_text(found[handle], [step for _, step in engine.run()], f"text {number}")


@pytest.mark.parametrize("name", ordinary(("llama", "gpt2", "gemma2", "mamba", "mixtral"), "gpt2", "mamba"))
def test_short_prompts_that_wait_together_are_read_in_one_pass(name, monkeypatch):
    loaded, read = made(name), []
    backbone = type(loaded.model).backbone

    def noting(model, tokens, *more, **others):
        read.append(tokens.shape)
        return backbone(model, tokens, *more, **others)

    monkeypatch.setattr(type(loaded.model), "backbone", noting)
    prompts = [[1, 2, 3, 4, 5, 6], [7, 8, 9], [10, 11, 12, 13], [5], list(range(3, 43))]
    engine = Engine(loaded, rows=5)
    handles = [engine.add(prompt, temperature=0.0, max_tokens=6, logprobs=2) for prompt in prompts]
    found = {handle: [] for handle in handles}
    for handle, step in engine.run():
        found[handle].append(step)
    prefills = [shape for shape in read if shape != (5, 1)]
    assert prefills == [(3, 6), (1, 1), (1, 40)], "the fourth would be padded to more than twice its length"
    for prompt, handle in zip(prompts, handles, strict=True):
        engine = Engine(loaded, rows=1)
        engine.add(prompt, temperature=0.0, max_tokens=6, logprobs=2)
        same_text(found[handle], [step for _, step in engine.run()], f"text {handle}")


def test_a_second_thread_is_refused_by_name_and_the_text_stays_right():
    loaded, inside, refused_twice = made("llama"), Event(), Event()

    def wait(done, total):
        inside.set()
        assert refused_twice.wait(PATIENCE)

    engine = Engine(loaded)
    engine.add(PROMPTS[2], max_tokens=4, prefill_chunk=4, report=wait)
    with ThreadPoolExecutor(thread_name_prefix="server") as pool:
        running = pool.submit(lambda: [step.token for _, step in engine.run()])
        assert inside.wait(PATIENCE)
        try:
            for method, call in (("step", engine.step), ("add", lambda: engine.add(PROMPTS[0]))):
                with pytest.raises(
                    RuntimeError, match=rf"Engine.{method}: thread MainThread .* thread server_0 uses"
                ):
                    call()
        finally:
            refused_twice.set()
        tokens = running.result()
    assert tokens == [step.token for step in zoo.stream(loaded, PROMPTS[2], max_tokens=4)]
    assert engine.idle and engine.step() == []  # once that thread is done, any other may use it
