"""What a trace shows of each choice is what the run drew from, for every setting that changes probabilities."""

import json

import mlx.core as mx
import numpy as np
import pytest

import zoo
from zoo.architecture.settings import CONSTRAINTS, GUIDANCE, PENALTIES, SAMPLING
from zoo.generation.loop import speculative_batch
from zoo.generation.sampling import draw
from zoo.inspect.trace_view.build_view import build_view

PROMPT = "The capital of China is Beijing. The capital of China is Beijing. The capital of"
TOKENS = 6
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def without_seen(tokens, logits):
    """A logits processor: no token of the text comes again."""
    logits[:, tokens] = -mx.inf
    return logits


# Settings that make each setting change some distribution, and the stage that shows it.
EXAMPLES = {
    "temperature": (dict(temperature=2.0), "temperature"),
    "top_k": (dict(top_k=3), "top_k"),
    "top_p": (dict(temperature=2.0, top_p=0.5), "top_p"),
    "min_p": (dict(temperature=2.0, min_p=0.2), "min_p"),
    "min_tokens_to_keep": (dict(temperature=2.0, top_p=0.01, min_tokens_to_keep=3), "top_p"),
    "typical_p": (dict(temperature=2.0, typical_p=0.3), "typical_p"),
    "xtc_probability": (dict(temperature=2.0, xtc_probability=0.9, xtc_threshold=0.02), "xtc_probability"),
    "xtc_threshold": (dict(temperature=2.0, xtc_probability=1.0, xtc_threshold=0.02), "xtc_probability"),
    "top_n_sigma": (dict(top_n_sigma=1.0), "top_n_sigma"),
    "mirostat": (dict(mirostat=2), "mirostat"),
    "mirostat_tau": (dict(mirostat=2, mirostat_tau=0.5), "mirostat"),
    "mirostat_eta": (dict(mirostat=2, mirostat_tau=1.0, mirostat_eta=0.9), "mirostat"),
    "repetition_penalty": (dict(repetition_penalty=1.8), "repetition_penalty"),
    "repetition_context_size": (
        dict(repetition_penalty=1.8, repetition_context_size=4),
        "repetition_penalty",
    ),
    "presence_penalty": (dict(presence_penalty=2.0), "presence_penalty"),
    "frequency_penalty": (dict(frequency_penalty=2.0), "frequency_penalty"),
    "dry_multiplier": (dict(dry_multiplier=2.0), "dry_multiplier"),
    "dry_base": (dict(dry_multiplier=1.0, dry_base=3.0), "dry_multiplier"),
    "dry_allowed_length": (dict(dry_multiplier=2.0, dry_allowed_length=1), "dry_multiplier"),
    "dry_breakers": (dict(dry_multiplier=2.0, dry_breakers=("?",)), "dry_multiplier"),
    "no_repeat_ngram_size": (dict(no_repeat_ngram_size=2), "no_repeat_ngram_size"),
    "exponential_decay_length_penalty": (
        dict(exponential_decay_length_penalty=(0, 1.2)),
        "exponential_decay_length_penalty",
    ),
    "logits_processors": (dict(logits_processors=(without_seen,)), "without_seen"),
    "guidance_scale": (dict(guidance_scale=2.0), "guidance_scale"),
    "negative_prompt": (dict(guidance_scale=2.0, negative_prompt="Paris is"), "guidance_scale"),
    "logit_bias": (dict(logit_bias={300: 8.0}), "logit_bias"),
    "banned": (dict(banned=("China", "is")), "banned"),
    "json_schema": (dict(json_schema=SCHEMA), "json_schema"),
    "regex": (dict(regex="[A-Z][a-z]+ [a-z]+"), "regex"),
    "grammar": (dict(grammar='start: "Beijing" | "Cairo"'), "grammar"),
    "min_tokens": (dict(min_tokens=TOKENS), "min_tokens"),
    "samplers": (dict(temperature=2.0, samplers={"epsilon": {}}), "epsilon"),
}


@pytest.fixture(scope="module")
def llama():
    return zoo.load("llama")


@pytest.fixture
def drawn(monkeypatch):
    """The probabilities (…, V) of every draw, in their order."""
    found, own = [], mx.random.categorical

    def categorical(logits, *rest, **options):
        found.append(np.array(mx.softmax(logits, axis=-1)))
        return own(logits, *rest, **options)

    monkeypatch.setattr(mx.random, "categorical", categorical)
    return found


def shown(choice, stage=-1):
    """The probabilities (V,) of a choice that has all tokens for candidates."""
    found = np.zeros(len(choice.candidates))
    found[list(choice.candidates)] = choice.stages[stage].probabilities
    return found


def test_every_setting_that_changes_probabilities_has_an_example():
    declared = {setting.name for setting in (*SAMPLING, *PENALTIES, *GUIDANCE, *CONSTRAINTS)} - {"seed"}
    assert set(EXAMPLES) == declared | {"min_tokens", "samplers"}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_last_stage_is_the_distribution_that_a_run_draws_from(llama, drawn, name):
    asked, stage = EXAMPLES[name]
    settings = {"temperature": 1.0, **asked, "max_tokens": TOKENS, "seed": 5}
    tokens = zoo.generate(llama, PROMPT, **settings).tokens
    run = list(drawn)
    trace = zoo.trace(llama, PROMPT, **settings)
    choices = trace.choices(llama.recipe.embedding.vocab)
    assert trace.tokens == tokens == [choice.token for choice in choices]
    for choice, plain, traced in zip(choices, run, drawn[len(run) :], strict=False):
        assert np.array_equal(shown(choice), traced[0])
        # Without a trace the same matrices are multiplied side by side, which rounds in another way.
        assert np.allclose(plain, traced, atol=1e-5)
    at = [found.name for found in choices[0].stages].index(stage)
    assert any(not np.array_equal(shown(choice, at), shown(choice, at - 1)) for choice in choices)
    for setting, value in asked.items():
        assert getattr(trace.settings, setting) == value


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [s.name for s in (*PENALTIES, *GUIDANCE, *CONSTRAINTS) if s.name != "dry_breakers"],
)
def test_greedy_run_takes_the_likeliest_of_the_last_stage(llama, name):
    asked, stage = EXAMPLES[name]
    trace = zoo.trace(llama, PROMPT, max_tokens=TOKENS, **asked)
    assert trace.tokens == zoo.generate(llama, PROMPT, max_tokens=TOKENS, **asked).tokens
    for choice in trace.choices(llama.recipe.embedding.vocab):
        assert shown(choice).argmax() == choice.token
        assert stage in [found.name for found in choice.stages]


def test_drafts_that_are_certain_leave_the_stages_of_the_run(llama, drawn):
    settings = dict(max_tokens=TOKENS, temperature=1.0, top_p=0.9, seed=1, prompt_lookup=3)
    tokens = zoo.generate(llama, PROMPT, **settings).tokens
    run = list(drawn)
    trace = zoo.trace(llama, PROMPT, **settings)
    choices = trace.choices(llama.recipe.embedding.vocab)
    assert trace.tokens == tokens == [choice.token for choice in choices]
    assert len(trace.passes) < len(tokens)  # some drafts were accepted
    for choice, plain, traced in zip(choices, run, drawn[len(run) :], strict=True):
        assert np.array_equal(shown(choice), traced[0]) and np.allclose(plain, traced, atol=1e-5)


def test_drawn_drafts_are_tested_against_the_last_stage(llama, monkeypatch):
    tested = []

    def accept(p, q, token, key):
        tested.append(np.array(p))
        return row_accept(p, q, token, key)

    row_accept = speculative_batch.accept
    monkeypatch.setattr(speculative_batch, "accept", accept)
    settings = dict(max_tokens=TOKENS, temperature=2.0, min_p=0.05, seed=1, draft_model=llama, draft_tokens=2)
    trace = zoo.trace(llama, PROMPT, **settings)
    choices = trace.choices(llama.recipe.embedding.vocab)
    assert trace.tokens == [choice.token for choice in choices] and tested
    last = [shown(choice) for choice in choices]
    assert all(any(np.allclose(p, one, atol=1e-7) for one in last) for p in tested)


def test_masked_diffusion_shows_what_it_draws_from(drawn):
    llada = zoo.load("llada")
    settings = dict(max_tokens=6, steps=3, temperature=1.5, top_k=4, seed=2)
    tokens = zoo.generate(llada, PROMPT, **settings).tokens
    run = list(drawn)
    trace = zoo.trace(llada, PROMPT, **settings)
    assert trace.tokens == tokens and trace.choices() == []
    assert (trace.settings.temperature, trace.settings.top_k, trace.settings.seed) == (1.5, 4, 2)
    passes = build_view(trace).unmasking
    assert len(passes) == len(run) == 3
    start = len(trace.prompt) - 6
    for uncovering, probabilities in zip(passes, run, strict=True):
        for hidden in uncovering.predictions:
            row = probabilities[0][hidden.position - start]
            assert np.allclose(row[list(hidden.tokens)], hidden.probabilities, atol=1e-3)
            assert row[hidden.chosen] > 0 and (row > 0).sum() == 4
    uncovered = {h.position: h.chosen for p in passes for h in p.predictions if h.position in p.kept}
    assert [uncovered[start + place] for place in range(len(tokens))] == tokens


def test_best_of_shows_the_choices_of_the_text_that_it_gives(llama):
    trace = zoo.trace(llama, PROMPT, strategy="best-of", best_of=3, temperature=2.0, seed=3, max_tokens=3)
    assert [choice.token for choice in trace.choices()] == trace.tokens
    assert len(trace.chosen.sequences) == 3


def test_contrastive_search_draws_from_no_distribution(llama):
    trace = zoo.trace(llama, PROMPT, strategy="contrastive", max_tokens=3)
    assert trace.choices() == [] and "choices" in trace.missing and trace.settings is None


def test_an_untraced_run_asks_once_who_observes(llama, monkeypatch):
    asked, own = [], draw.record_of
    monkeypatch.setattr(draw, "record_of", lambda settings: asked.append(settings) or own(settings))
    zoo.generate(llama, PROMPT, max_tokens=TOKENS, temperature=1.0)
    assert len(asked) == 1


def test_the_view_names_the_functions_and_lists_the_ids_of_the_settings(llama):
    settings = dict(logits_processors=without_seen, guidance_scale=2.0, negative_prompt=mx.array([5, 6]))
    view = build_view(zoo.trace(llama, PROMPT, max_tokens=1, **settings))
    shown = json.loads(json.dumps(view.settings))
    assert shown["logits_processors"] == ["without_seen"]
    assert (shown["guidance_scale"], shown["negative_prompt"]) == (2.0, [5, 6])
