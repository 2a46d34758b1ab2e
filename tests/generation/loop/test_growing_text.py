"""Texts that outgrow a range of lengths with equal rotary angles: each token is as in one pass over the whole text."""

from functools import cache

import mlx.core as mx
import pytest

import zoo
from zoo.assemble import assemble
from zoo.blocks.position import AngleRanges
from zoo.checkpoint.open import make_recipe
from zoo.generation.loop.engine import Engine
from zoo.host.registry import default_registry
from zoo.testing.subjects import Subject, loaded_of, random_texts, randomise
from zoo_llama import TINY

CONTEXT = 24  # tokens, up to which a text is rotated by the short factors
LONGROPE = dict(
    original_max_position_embeddings=CONTEXT,
    rope_scaling=dict(type="longrope", short_factor=[1.0] * 4 + [1.5] * 4, long_factor=[1.5] * 2 + [8.0] * 6),
)
DYNAMIC = dict(rope_scaling=dict(rope_type="dynamic", factor=8.0))
PROMPT = [3, 141, 59, 26, 53, 58, 97, 93, 23, 84, 62, 64]


@cache
def model_of(family="phi3", window=None, positions=512):
    registry = default_registry()
    scaled = LONGROPE | dict(sliding_window=window) if family == "phi3" else DYNAMIC
    numbers = TINY | dict(max_position_embeddings=positions) | scaled
    architecture = registry.architecture(family)
    recipe = make_recipe(architecture, numbers, registry)
    model = assemble(recipe, registry)
    randomise(model)
    return loaded_of(Subject(architecture, numbers, recipe, model, random_texts(recipe), registry))


def check(loaded, prompt, steps):
    """Each token's log-probability is that of one pass over the text up to it."""
    ids = list(prompt)
    for step in steps:
        logits = loaded.model(mx.array([ids]))[0, -1]
        expected = (logits - mx.logsumexp(logits))[step.token].item()
        assert step.logprob == pytest.approx(expected, abs=2e-4), f"token {len(ids)}"
        ids.append(step.token)
    assert len(ids) > CONTEXT + 4


def stream(loaded, prompt=PROMPT, **settings):
    settings = dict(max_tokens=24, logprobs=True, temperature=0.0) | settings
    return [step for step in zoo.stream(loaded, prompt, **settings) if step.token is not None]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        dict(temperature=1.0, seed=5),
        dict(prefill_chunk=5),
        dict(best_of=3, seed=2, temperature=1.0),
    ],
    ids=str,
)
def test_a_text_that_grows_is_as_if_it_were_read_at_once(ahead, settings):
    loaded = model_of()
    check(loaded, PROMPT, stream(loaded, **settings))


def test_a_window_sees_the_new_angles_too(ahead):
    loaded = model_of(window=9)
    check(loaded, PROMPT, stream(loaded))


@pytest.mark.parametrize("length", [CONTEXT - 1, CONTEXT, CONTEXT + 1])
def test_prompts_that_end_about_the_switch(ahead, length):
    loaded = model_of()
    prompt = (PROMPT * 3)[:length]
    check(loaded, prompt, stream(loaded, prompt))


def test_the_text_is_read_anew_once(ahead, monkeypatch):
    loaded = model_of()
    backbone, lengths = type(loaded.model).backbone, []

    def counted(self, tokens, *inputs, **more):
        lengths.append(tokens.shape[1])
        return backbone(self, tokens, *inputs, **more)

    monkeypatch.setattr(type(loaded.model), "backbone", counted)
    stream(loaded)
    assert [length for length in lengths if length > 1] == [len(PROMPT), CONTEXT + 1]


def test_texts_of_a_batch_outgrow_their_angles_one_after_the_other(ahead):
    loaded = model_of()
    prompts = [PROMPT, PROMPT[:7], PROMPT + PROMPT[:9], (PROMPT * 3)[:30]]
    engine = Engine(loaded)
    handles = [
        engine.add(prompt, max_tokens=24, logprobs=True, temperature=0.0, max_time=None) for prompt in prompts
    ]
    steps = {handle: [] for handle in handles}
    for handle, step in engine.run():
        assert step.error is None
        steps[handle].append(step)
    for handle, prompt in zip(handles, prompts, strict=True):
        assert len(steps[handle]) == 24
        check(loaded, prompt, steps[handle])


def test_a_text_cancelled_at_the_switch_leaves_nothing(ahead):
    loaded = model_of()
    for steps in range(CONTEXT - len(PROMPT) - 2, CONTEXT - len(PROMPT) + 4):
        engine = Engine(loaded)
        handle = engine.add(PROMPT, max_tokens=24)
        for _ in range(steps):
            engine.step()
        engine.cancel(handle)
        engine.step()
        assert engine.idle


@pytest.mark.parametrize("settings", [dict(prompt_lookup=3), dict(temperature=0.7, seed=1, prompt_lookup=2)])
def test_drafts(ahead, settings):
    loaded = model_of()
    steps = stream(loaded, PROMPT[:4] * 3, **settings)
    check(loaded, PROMPT[:4] * 3, steps)
    assert steps[-1].drafted is not None and steps[-1].drafted.passes > 10


def test_a_draft_model_goes_on_beyond_the_switch():
    loaded = model_of()
    steps = stream(loaded, draft_model=loaded, max_tokens=48)
    check(loaded, PROMPT, steps)
    assert steps[-1].drafted.accepted > 25


@pytest.mark.parametrize("prompt", [PROMPT, (PROMPT * 3)[:31]], ids=len)
@pytest.mark.parametrize("chunk", [None, 7])
def test_prompts_are_read_in_chunks_by_the_angles_of_the_whole(prompt, chunk):
    loaded = model_of()
    check(loaded, prompt, stream(loaded, prompt, prefill_chunk=chunk))


def test_the_prompt_cache_keeps_apart_what_other_angles_computed(ahead):
    loaded = model_of()
    cache = zoo.PromptCache(loaded)
    long = (PROMPT * 3)[:31]
    check(loaded, PROMPT, stream(loaded, PROMPT, prompt_cache=cache))
    first = stream(loaded, long, prompt_cache=cache)
    check(loaded, long, first)
    again = stream(loaded, [*long, 7, 8], prompt_cache=cache, prefill_chunk=5)
    check(loaded, [*long, 7, 8], again)
    short = stream(loaded, PROMPT[:10], prompt_cache=cache)
    check(loaded, PROMPT[:10], short)
    assert (first[0].prompt.cached_tokens, again[0].prompt.cached_tokens) == (12, 31)
    assert short[0].prompt.cached_tokens == 9


def test_beams_are_scored_by_the_new_angles():
    loaded = model_of()
    found = [step for step in zoo.stream(loaded, PROMPT, beams=3, max_tokens=20, return_sequences=3)]
    candidates = [step.candidate for step in found if step.candidate]
    assert len(candidates) == 3
    for candidate in candidates:
        ids = mx.array([[*PROMPT, *candidate["tokens"]]])
        logits = loaded.model(ids[:, :-1])
        total = 0.0
        for end in range(len(PROMPT), ids.shape[1]):
            logits = loaded.model(ids[:, :end])[0, -1]
            total += (logits - mx.logsumexp(logits))[ids[0, end]].item()
        assert candidate["score"] == pytest.approx(total / 20, abs=1e-4)


def test_a_contrastive_search_takes_its_probabilities_from_the_new_angles():
    loaded = model_of()
    check(loaded, PROMPT, stream(loaded, penalty_alpha=0.3, top_k=3, temperature=None))


def test_the_negative_prompt_grows_by_the_same_angles():
    loaded = model_of()
    negative = [9, 8, 7, 6, 5]
    steps = stream(loaded, guidance_scale=1.5, negative_prompt=negative, max_tokens=30)
    ids = []
    for step in steps:
        rows = [loaded.model(mx.array([[*prompt, *ids]]))[0, -1] for prompt in (PROMPT, negative)]
        own, other = (row - mx.logsumexp(row) for row in rows)
        guided = other + 1.5 * (own - other)
        assert guided.max().item() - guided[step.token].item() < 1e-3, f"token {len(ids)}"
        ids.append(step.token)
    assert len(negative) + len(ids) > CONTEXT + 4


def test_angles_that_change_with_every_token_are_renewed_once(ahead):
    loaded = model_of("llama", positions=CONTEXT)
    steps = stream(loaded)
    ids = [*PROMPT, *(step.token for step in steps)]
    logits = loaded.model(mx.array([ids[: CONTEXT + 1]]))[0, -1]
    step = steps[CONTEXT + 1 - len(PROMPT)]
    assert step.logprob == pytest.approx((logits - mx.logsumexp(logits))[step.token].item(), abs=2e-4)
    cache = zoo.PromptCache(loaded)
    stream(loaded, prompt_cache=cache)
    again = stream(loaded, ids[:30], prompt_cache=cache)
    assert again[0].prompt.cached_tokens == 0 and "change with every token" in again[0].prompt.miss_reason


def test_ranges_of_lengths():
    settled, changing = AngleRanges((4096,)), AngleRanges((8, 16), last=16)
    assert [settled.index(length) for length in (1, 4096, 4097, 9999)] == [0, 0, 1, 1]
    assert [settled.end(length) for length in (1, 4096, 4097)] == [4096, 4096, None]
    assert [changing.index(length) for length in (8, 9, 16, 17)] == [0, 1, 1, None]
    assert [changing.end(length) for length in (8, 9, 16, 17)] == [8, 16, 16, 17]
    assert AngleRanges().index(10**6) == 0 and AngleRanges().end(1) is None
