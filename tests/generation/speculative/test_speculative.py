"""Texts with drafts: what they are, whatever drafts them, and what is refused."""

from functools import cache
from itertools import pairwise, product

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zoo
from tests.helpers.chi_square import deviation
from tests.helpers.table_model import table_model
from zoo.errors import PromptError
from zoo.generation.loop.engine import Engine
from zoo.generation.sampling import LogitsProcessors, TokenSampler
from zoo.generation.settings import Constraints, Settings
from zoo.generation.speculative import Draft, DraftThrottle, draft_config
from zoo.testing import subject
from zoo.testing.generation_checks import KnownText, drafted_steps, same_text
from zoo.testing.subjects import loaded_of

VOCAB = 4
DRAFTED = ("draft_tokens", "prompt_lookup")


def sampler_after(prompt, asked):
    settings = Settings(**asked)
    return TokenSampler(settings, LogitsProcessors(settings, Constraints(prompt=tuple(prompt)), VOCAB))


def steps(loaded, prompt, **asked):
    engine = Engine(loaded)
    engine.add(prompt, **asked)
    return [step for _, step in engine.run()]


@pytest.mark.slow
@pytest.mark.parametrize(
    "asked",
    [
        dict(temperature=0.8, top_k=3, draft_tokens=4),
        dict(temperature=1.0, min_p=0.05, prompt_lookup=2),
        pytest.param(dict(temperature=1.3, draft_tokens=2), marks=pytest.mark.nightly),
        pytest.param(dict(temperature=1.0, top_p=0.8, draft_tokens=1), marks=pytest.mark.nightly),
    ],
    ids=str,
)
def test_drawn_tokens_have_the_law_of_the_model_alone(asked, monkeypatch):
    """In one long text: each token of a table depends on the one before alone, so that its successors are a sample."""
    monkeypatch.setattr(DraftThrottle, "should_draft", lambda self: True)
    loaded, length = table_model(VOCAB, 0), 800
    drafts = {} if "prompt_lookup" in asked else {"draft_model": table_model(VOCAB, 5)}
    found = steps(loaded, [1], max_tokens=length, seed=7, **asked, **drafts)
    drafted, text = found[-1].drafted, [1, *(step.token for step in found)]
    assert length / 10 < drafted.accepted < drafted.proposed and drafted.passes < length
    sampler = sampler_after((), {k: v for k, v in asked.items() if k not in DRAFTED})
    tested = 0
    for last in range(VOCAB):
        following = [after for token, after in pairwise(text) if token == last]
        law = np.array(mx.softmax(sampler.scores(loaded.model.table[last][None])[0]))
        if len(following) * law[law > 0].min() >= 5:
            assert deviation(np.bincount(following, minlength=VOCAB), law) < 4
            tested += 1
    assert tested >= 2


@pytest.mark.slow
def test_penalties_and_bans_hold_within_drafts():
    """In many short texts, whose probabilities are the products of what the sampler's scores say token by token."""
    prompt, length, texts = [1, 2, 1, 2, 1], 3, 300
    loaded, draft = table_model(VOCAB, 0), table_model(VOCAB, 5)
    asked = dict(temperature=0.8, repetition_penalty=1.5, presence_penalty=0.5, no_repeat_ngram_size=2)
    law = {}
    for text in product(range(VOCAB), repeat=length):
        sampler = sampler_after(prompt, asked)
        law[text], last = 1.0, prompt[-1]
        for token in text:
            law[text] *= mx.softmax(sampler.scores(loaded.model.table[last][None])[0])[token].item()
            if not law[text]:
                break
            sampler.update(token)
            last = token
    assert sum(law.values()) == pytest.approx(1, abs=1e-4)
    engine, found, accepted = Engine(loaded), {}, 0
    for seed in range(texts):
        handle = engine.add(prompt, max_tokens=length, seed=seed, draft_model=draft, draft_tokens=2, **asked)
        found[handle] = ()
    for handle, step in engine.run():
        found[handle] += (step.token,)
        accepted += step.drafted.accepted if step.drafted else 0
    assert accepted > texts / 10
    counts = {text: list(found.values()).count(text) for text in law}
    common = [text for text, chance in law.items() if chance * texts >= 5]
    rare = [
        text for text in law if text not in common
    ]  # together, so that each count is expected to be 5 at least
    assert all(law[text] > 0 for text in found.values())
    assert (
        deviation(
            [*(counts[text] for text in common), sum(counts[text] for text in rare)],
            [*(law[text] for text in common), sum(law[text] for text in rare)],
        )
        < 4
    )


KINDS = ("llama", "mamba", "gemma2", "prefix-lm")  # the conformance suite holds every architecture to it


@cache
def small(name, preset=None):
    return loaded_of(subject(name, preset))


@settings(max_examples=12)
@given(
    st.sampled_from(KINDS),
    st.lists(st.integers(0, 5), min_size=1, max_size=20),
    st.integers(1, 6),
    st.lists(st.integers(0, 6), min_size=1, max_size=6),
)
def test_a_greedy_text_is_the_one_without_drafts(name, prompt, count, right):
    loaded = small(name)
    asked = dict(max_tokens=10, temperature=0.0, logprobs=2)
    expected = steps(loaded, prompt, **asked)
    same_text(steps(loaded, prompt, prompt_lookup=count, **asked), expected, "by look-up")

    class Mixed(KnownText):
        def propose(self, count):
            keep = right[self.passes % len(right)]
            draft = super().propose(count).tokens
            ahead = self.known[len(self.text) : len(self.text) + count]
            return Draft((*ahead[:keep], *draft[keep:])[: len(ahead)])

    known = Mixed([*prompt, *(step.token for step in expected)], loaded.recipe.vocab)
    same_text(drafted_steps(loaded, prompt, known, count, **asked), expected, "by a text known in part")


@pytest.mark.parametrize(
    "asked",
    [
        dict(repetition_penalty=1.3, no_repeat_ngram_size=3),
        dict(dry_multiplier=1.0, frequency_penalty=0.2, logit_bias={3: 2.0}),
        dict(temperature=0.9, top_k=6, seed=1),
        dict(temperature=1.2, xtc_probability=0.5, xtc_threshold=0.01, seed=2),
        dict(mirostat=2, seed=3),
    ],
    ids=lambda asked: next(iter(asked)),
)
def test_look_up_gives_the_very_tokens_of_the_same_settings_without_it(asked):
    loaded, prompt = table_model(8, 0), [1, 2, 3, 4] * 3
    asked = dict(max_tokens=40, logprobs=2) | asked
    found = steps(loaded, prompt, prompt_lookup=4, **asked)
    same_text(found, steps(loaded, prompt, **asked), "by look-up")
    assert found[-1].drafted.proposed > 0


def test_a_mask_of_a_grammar_holds_while_drafting():
    loaded = zoo.load("llama")
    asked = dict(regex="(Beijing|Paris), (Beijing|Paris), [0-9]{3}", max_tokens=40)
    prompt = "Beijing, Paris, Beijing, Paris, Beijing,"
    alone = zoo.generate(loaded, prompt, **asked).text
    found = list(zoo.stream(loaded, prompt, prompt_lookup=4, **asked))
    assert "".join(step.text for step in found) == alone and found[-1].drafted.proposed > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy",
    [
        dict(kv_bits=4, kv_start=12),
        dict(max_kv_size=12, keep=3),
        pytest.param(dict(kv_bits=8), marks=pytest.mark.nightly),
        pytest.param(dict(max_kv_size=9, kv_bits=8), marks=pytest.mark.nightly),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_every_policy_of_the_cache_takes_drafts_back(policy, name):
    loaded, prompt = small(name, "pocket"), [5, 6, 7, 8] * 3
    asked = dict(max_tokens=20, temperature=0.0, logprobs=2, **policy)
    expected = steps(loaded, prompt, **asked)
    known = KnownText([*prompt, *(step.token for step in expected)], loaded.recipe.vocab)
    same_text(drafted_steps(loaded, prompt, known, **asked), expected, "the drafted text")


def test_a_draft_model_of_the_same_weights_is_nearly_always_right():
    loaded = small("mamba")
    prompt = list(range(9))
    expected = steps(loaded, prompt, max_tokens=20, temperature=0.0, logprobs=2)
    found = steps(loaded, prompt, max_tokens=20, temperature=0.0, logprobs=2, draft_model=loaded)
    same_text(found, expected, "by the model itself")
    drafted = found[-1].drafted
    assert drafted.accepted == drafted.proposed == 20 - 1 - drafted.passes


def test_drawn_drafts_of_a_seed_repeat_whatever_the_clock_says(monkeypatch):
    loaded, draft = table_model(8, 0), table_model(8, 1)
    asked = dict(max_tokens=60, temperature=1.0, seed=5, draft_model=draft)
    first = steps(loaded, [1], **asked)
    monkeypatch.setattr(
        "zoo.generation.speculative.verification.DraftThrottle._compare",
        lambda self: setattr(self, "paused", 9),
    )
    assert [s.token for s in steps(loaded, [1], **asked)] == [s.token for s in first]


def test_a_text_ends_within_a_draft():
    loaded = zoo.load("llama")
    expected = list(zoo.stream(loaded, "The capital city of China is"))
    for asked in (dict(prompt_lookup=8), dict(draft_model=loaded, draft_tokens=16)):
        found = list(zoo.stream(loaded, "The capital city of China is", **asked))
        assert [(s.token, s.text, s.finish_reason) for s in found] == [
            (s.token, s.text, s.finish_reason) for s in expected
        ]
    assert found[-1].drafted.passes == 1
    stopped = list(zoo.stream(loaded, "The capital city of China is", draft_model=loaded, stop="jing"))
    assert "".join(step.text for step in stopped) == " Bei" and stopped[-1].finish_reason == "stop"


def test_drafted_texts_run_beside_others_and_can_be_cancelled():
    loaded = small("llama")
    engine, asked = Engine(loaded), dict(max_tokens=12, temperature=0.0, logprobs=2)
    prompts = [[1, 2, 3] * 4, [4, 5] * 5, [6, 7, 8]]
    handles = [engine.add(prompts[0], prompt_lookup=3, **asked), engine.add(prompts[1], **asked)]
    gone = engine.add(prompts[2], prompt_lookup=2, **asked)
    found = engine.step()
    engine.cancel(gone)
    found += list(engine.run())
    for handle, prompt in zip(handles, prompts, strict=False):
        mine = [step for owner, step in found if owner == handle]
        same_text(mine, steps(loaded, prompt, **asked), f"text {handle}")
    engine.step()
    assert engine.idle


def test_nothing_is_drafted_where_angles_depend_on_the_length():
    made = subject("llama")
    context = 16
    scaling = zoo.recipe.DynamicScaling(factor=2.0, context=context)
    recipe = made.recipe.change_layers(mixer={"rope": {"scaling": scaling}})
    model = zoo.assemble.assemble(recipe, made.registry)
    mx.random.seed(0)
    loaded = loaded_of(made)
    loaded.model, loaded.recipe = model, recipe
    asked = dict(max_tokens=20, temperature=0.0, logprobs=2)
    prompt = [1, 2, 3, 4]
    expected = steps(loaded, prompt, **asked)
    found = steps(loaded, prompt, draft_model=loaded, **asked)
    same_text(found, expected, "past the trained context")
    drafted = found[-1].drafted
    assert 0 < drafted.proposed <= context - len(prompt)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (dict(prompt_lookup=2, own_draft=True), "`prompt_lookup` and `own_draft` cannot be given together"),
        (dict(draft_tokens=2), "`draft_tokens` goes with `draft_model` or `own_draft`"),
        (dict(prompt_lookup=3, draft_tokens=2), "`draft_tokens` goes with `draft_model` or `own_draft`"),
        (dict(own_draft=True), "`own_draft`: llama has no next-token-prediction layer"),
        (dict(draft_model="nowhere"), "`draft_model`: 'nowhere' is no architecture, folder or hub id"),
        (dict(draft_model="bert"), "bert is no causal decoder"),
        (dict(draft_model="prefix-lm"), "prefix-lm is no causal decoder"),
    ],
)
def test_what_cannot_draft_is_refused_by_name(asked, words):
    with pytest.raises(PromptError) as caught:
        zoo.stream(zoo.load("llama"), "中国的首都是", **asked)
    assert words in str(caught.value)


def test_a_draft_model_of_another_tokenizer_is_refused(folder, tokenizer_folder):
    path = folder()
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (path / file).write_bytes((tokenizer_folder / file).read_bytes())
    with pytest.raises(PromptError, match=r"it has another tokenizer: token \d+ is '.*' there and '.*' in"):
        zoo.stream(zoo.load("llama"), "中国的首都是", draft_model=str(path))
    with pytest.raises(PromptError, match="one of the two models has a tokenizer, the other none"):
        zoo.stream(zoo.load("llama"), "中国的首都是", draft_model=small("mamba"))
    with pytest.raises(PromptError, match=r"its vocabulary has 4 tokens, that of \. "):
        draft_config(small("llama"), Settings(draft_model=table_model(4, 0)))


def test_caches_that_cannot_go_back_are_refused_by_the_name_of_their_model(monkeypatch):
    monkeypatch.setattr("zoo.cache.StateCache.restores", False)
    for loaded, asked in (
        (small("mamba"), dict(prompt_lookup=2)),
        (small("llama"), dict(draft_model=small("mamba"))),
    ):
        with pytest.raises(PromptError, match="the caches of mamba cannot drop tokens that were rejected"):
            steps(loaded, [1, 2, 3], **asked)


def test_a_draft_model_is_loaded_once():
    loaded = zoo.load("llama")
    zoo.generate(loaded, "中国的首都是", draft_model="mamba")
    (first,) = loaded.drafters.values()
    zoo.generate(loaded, "中国的首都是", draft_model="mamba")
    assert list(loaded.drafters.values()) == [first]


def test_masked_diffusion_and_translation_take_no_drafts():
    for name in ("llada", "transformer"):
        with pytest.raises(PromptError, match="`prompt_lookup`"):
            zoo.stream(zoo.load(name), "I love NLP", prompt_lookup=2)


def test_logprobs_are_those_of_the_model():
    loaded = small("qwen3")
    prompt = [1, 2, 3] * 4
    found = steps(loaded, prompt, prompt_lookup=3, temperature=0.0, max_tokens=8, logprobs=3)
    tokens = [*prompt, *(step.token for step in found)]
    logits = loaded.model(mx.array([tokens]))[0].astype(mx.float32)
    each = np.array(logits - mx.logsumexp(logits, axis=-1, keepdims=True))
    for place, step in enumerate(found, len(prompt) - 1):
        assert step.logprob == pytest.approx(each[place, step.token], abs=1e-3)
        assert list(step.alternatives.values()) == pytest.approx(sorted(each[place])[:-4:-1], abs=1e-3)


@pytest.mark.parametrize("name", ["llama", "mamba", "gemma2"])
def test_what_a_drafted_text_leaves_in_a_prompt_cache_serves_the_next(name):
    loaded = small(name)
    cached, asked = zoo.PromptCache(loaded), dict(max_tokens=9, temperature=0.0, logprobs=2)
    prompt = [1, 2, 3, 4] * 4
    first = list(zoo.stream(loaded, prompt, prompt_lookup=3, prompt_cache=cached, **asked))
    longer = [*prompt, *(step.token for step in first), 5, 6]
    found = list(zoo.stream(loaded, longer, prompt_lookup=3, prompt_cache=cached, **asked))
    assert found[0].prompt.cached_tokens >= len(prompt) - 1
    same_text(found, list(zoo.stream(loaded, longer, **asked)), "the second text")
