"""An error of a pass ends the sequences of that pass, and leaves the others as they are alone."""

import gc
import weakref

import mlx.core as mx
import pytest

import zoo
from tests.helpers.engine_steps import steps_alone, steps_by_handle
from zoo.errors import ZooError
from zoo.generation.loop.batch_decoder import DecodeStep
from zoo.generation.loop.engine import Engine
from zoo.generation.loop.speculative_batch import SpeculativeBatch
from zoo.testing.generation_checks import same_text
from zoo.testing.subjects import loaded_of, subject

ASKED = {"temperature": 0.0, "logprobs": 2, "max_tokens": 6}
BAD = 45  # a token whose prompt cannot be read
PROMPTS = [[5, 6, 7], [8, BAD, 9], [10, 11, 12, 13], [*range(3, 40)], [BAD, *range(3, 40)]]
ERRORS = [
    (
        RuntimeError("[metal::malloc] 9 bytes"),
        "out of memory while reading a prompt of 3 tokens: RuntimeError: ",
    ),
    (MemoryError("std::bad_alloc"), "out of memory while reading a prompt of 3 tokens: MemoryError: std"),
    (MemoryError(), "out of memory while reading a prompt of 3 tokens: MemoryError"),
    (RuntimeError("[eval] no"), "failed while reading a prompt of 3 tokens: RuntimeError: "),
    (ZooError("the layer fails"), "the layer fails"),
]


def failing(monkeypatch, loaded, error):
    """Let the model raise such an error in a pass that reads the token BAD."""
    model = type(loaded.model)
    backbone = model.backbone

    def raising(self, tokens, *more, **others):
        if tokens.shape[1] > 1 and BAD in tokens.flatten().tolist():
            raise type(error)(*error.args)  # a new one: a traceback holds what its frames do
        return backbone(self, tokens, *more, **others)

    monkeypatch.setattr(model, "backbone", raising)


def alone(loaded, prompt, **asked):
    return steps_alone(loaded, prompt, **ASKED | asked)


def is_left_clean(engine):
    assert (engine.waiting, engine.prefilling, engine.running) == (0, 0, 0)
    engine.step()
    assert engine.idle


@pytest.mark.parametrize(("error", "words"), ERRORS, ids=lambda value: str(value)[:20])
def test_what_fails_while_a_prompt_is_read_ends_that_sequence_alone(monkeypatch, error, words):
    loaded = loaded_of(subject("llama"))
    failing(monkeypatch, loaded, error)
    engine = Engine(loaded)
    handles = [engine.add(prompt, **ASKED) for prompt in PROMPTS]
    found = steps_by_handle(engine, handles)
    for handle, prompt in zip(handles, PROMPTS, strict=True):
        if BAD in prompt:
            (step,) = found[handle]
            assert step.finish_reason == "error" and step.token is None
            assert isinstance(step.error, ZooError)
            assert words.replace(" 3 ", f" {len(prompt)} ") in str(step.error)
        else:
            same_text(found[handle], alone(loaded, prompt), f"the text after {prompt[:3]}")
    is_left_clean(engine)


@pytest.mark.parametrize("name", ["gemma2", "mamba", "lstm", "mixtral"])
def test_other_kinds_of_models_go_on_too(monkeypatch, name):
    loaded = loaded_of(subject(name))
    failing(monkeypatch, loaded, MemoryError())
    engine = Engine(loaded)
    running = engine.add(PROMPTS[0], **ASKED)
    steps = engine.step()
    handles = [running, *(engine.add(prompt, **ASKED) for prompt in PROMPTS[1:])]
    found = steps_by_handle(engine, handles, steps)
    for handle, prompt in zip(handles, PROMPTS, strict=True):
        if BAD in prompt:
            assert [step.finish_reason for step in found[handle]] == ["error"]
        else:
            same_text(found[handle], alone(loaded, prompt), f"the text after {prompt[:3]}")
    is_left_clean(engine)


def failing_step(monkeypatch, error, rows, place):
    """The pass number `place` over so many rows raises `error`."""
    call, left = DecodeStep.__call__, [place]

    def raising(self, tokens, cache):
        if tokens.shape[0] == rows:
            left[0] -= 1
            if not left[0]:
                raise error
        return call(self, tokens, cache)

    monkeypatch.setattr(DecodeStep, "__call__", raising)


def test_what_fails_in_a_pass_of_a_batch_ends_its_sequences_and_no_others(monkeypatch, ahead):
    loaded = loaded_of(subject("llama"))
    engine = Engine(loaded, rows=3)
    prompts = [[5, 6, 7], [8, 9, 10], [11, 12, 13], [14, 15, 16]]
    kept = [engine.add(prompt, **ASKED) for prompt in prompts[:2]]
    apart = engine.add(prompts[2], **ASKED, max_kv_size=64)
    later = engine.add(prompts[3], **ASKED)
    failing_step(monkeypatch, RuntimeError("[metal::malloc] 9 bytes"), 2, 3)
    found = steps_by_handle(engine, [*kept, apart, later])
    for handle in kept:
        *before, last = found[handle]
        assert len(before) == (2 if ahead else 3) and last.finish_reason == "error"
        assert "out of memory in a pass of 2 sequences: RuntimeError: [metal::malloc] 9" in str(last.error)
    same_text(found[apart], alone(loaded, prompts[2], max_kv_size=64), "the text of another batch")
    same_text(found[later], alone(loaded, prompts[3]), "the text that waited")
    is_left_clean(engine)


def test_a_text_that_joins_a_failing_pass_keeps_its_first_token(monkeypatch, ahead):
    loaded = loaded_of(subject("llama"))
    engine = Engine(loaded)
    running = engine.add([5, 6, 7], **ASKED)
    steps = engine.step()
    ending, joining = engine.add([8, 9, 10], **ASKED | {"max_tokens": 1}), engine.add([11, 12, 13], **ASKED)
    failing_step(monkeypatch, MemoryError(), 2, 1)
    found = steps_by_handle(engine, [running, ending, joining], steps)
    assert found[running][-1].finish_reason == found[joining][-1].finish_reason == "error"
    if not ahead:  # what was given before the pass began
        same_text(found[ending], alone(loaded, [8, 9, 10])[:1], "the text that ended before the pass")
        assert len(found[joining]) == 2
    is_left_clean(engine)


def test_a_text_whose_logits_are_no_numbers_is_not_kept_in_a_prompt_cache(monkeypatch, ahead):
    loaded = loaded_of(subject("mamba"))
    cache = zoo.PromptCache(loaded)
    engine = Engine(loaded, prompt_cache=cache)
    call = DecodeStep.__call__
    monkeypatch.setattr(DecodeStep, "__call__", lambda *inputs: call(*inputs) * float("nan"))
    failed = engine.add([5, 6, 7], **ASKED)
    *before, last = steps_by_handle(engine, [failed])[failed]
    assert len(before) == 1 and "token 2" in str(last.error)
    answer = [step.token for step in before]
    assert cache.match([5, 6, 7, *answer, 8], None).length < 3


def test_a_lost_rank_ends_the_run(monkeypatch):
    engine = Engine(loaded_of(subject("llama")))
    engine.add([5, 6, 7], **ASKED)
    failing_step(monkeypatch, RuntimeError("[ring] connection to a peer was lost"), 1, 2)
    with pytest.raises(RuntimeError, match="a peer was lost"):
        list(engine.run())


def test_a_sampler_that_fails_ends_its_own_sequence():
    loaded = loaded_of(subject("llama"))
    calls = []

    def processor(ids, logits):
        calls.append(len(ids))
        if len(calls) == 3:
            raise ZooError("the processor fails")
        return logits

    engine = Engine(loaded)
    bad = engine.add([5, 6, 7], **ASKED, logits_processors=[processor])
    good = engine.add([8, 9, 10], **ASKED)
    found = steps_by_handle(engine, [bad, good])
    assert [step.finish_reason for step in found[bad]] == [None, None, "error"]
    assert "the processor fails" in str(found[bad][-1].error)
    same_text(found[good], alone(loaded, [8, 9, 10]), "the text beside")
    is_left_clean(engine)


def test_drafts_that_fail_end_their_own_sequence(monkeypatch):
    loaded = loaded_of(subject("llama"))
    engine = Engine(loaded)
    bad = engine.add([5, 6, 7, 5, 6, 7], **ASKED, prompt_lookup=2)
    good = engine.add([8, 9, 10], **ASKED)

    def raising(self, sequence):
        raise MemoryError

    monkeypatch.setattr(SpeculativeBatch, "_pass", raising)
    found = steps_by_handle(engine, [bad, good])
    assert [step.finish_reason for step in found[bad]] == [None, "error"]
    same_text(found[good], alone(loaded, [8, 9, 10]), "the text beside")
    is_left_clean(engine)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, ValueError])
def test_an_interrupt_passes_through_and_the_rest_goes_on(monkeypatch, kind):
    loaded = loaded_of(subject("llama"))
    failing(monkeypatch, loaded, kind())
    engine = Engine(loaded)
    first = engine.add(PROMPTS[0], **ASKED)
    steps = engine.step()
    engine.add(PROMPTS[4], **ASKED)
    with pytest.raises(kind):
        engine.step()
    same_text(steps_by_handle(engine, [first], steps)[first], alone(loaded, PROMPTS[0]), "the text that ran")
    is_left_clean(engine)


def test_an_interrupt_in_a_pass_of_a_batch_ends_its_sequences_and_loses_no_step(monkeypatch, ahead):
    loaded = loaded_of(subject("llama"))
    engine = Engine(loaded)
    other = engine.add([5, 6, 7], **ASKED, max_kv_size=64)
    steps = engine.step()
    for prompt in ([8, 9, 10], [11, 12, 13]):
        engine.add(prompt, **ASKED)
    failing_step(monkeypatch, KeyboardInterrupt(), 2, 1)
    with pytest.raises(KeyboardInterrupt):
        while True:
            steps += [(handle, step) for handle, step in engine.step() if handle == other]
    assert engine.running == 1
    found = steps_by_handle(engine, [other], steps)
    same_text(found[other], alone(loaded, [5, 6, 7], max_kv_size=64), "the text of another batch")
    is_left_clean(engine)


@pytest.mark.parametrize("error", [RuntimeError("[malloc] no"), ZooError("the layer fails")])
def test_nothing_is_held_of_what_failed(monkeypatch, error):
    loaded, caches = loaded_of(subject("llama")), []
    make = type(loaded.model).make_cache

    def noting(self, policy=None):
        made = make(self, policy)
        caches.extend(weakref.ref(cache) for cache in made)
        return made

    monkeypatch.setattr(type(loaded.model), "make_cache", noting)
    failing(monkeypatch, loaded, error)
    engine = Engine(loaded)
    engine.add(PROMPTS[1], **ASKED)
    caches.clear()
    ((_, step),) = engine.step()
    assert step.error is not None and caches
    gc.collect()
    assert engine.idle and not any(cache() for cache in caches)
    mx.synchronize()


def test_out_of_memory_is_an_error_of_the_zoo_for_a_single_text(monkeypatch):
    loaded = loaded_of(subject("llama"))
    failing(monkeypatch, loaded, RuntimeError("[metal::malloc] 9 bytes"))
    with pytest.raises(ZooError, match="out of memory while reading a prompt of 3 tokens: RuntimeError"):
        zoo.generate(loaded, PROMPTS[1])
