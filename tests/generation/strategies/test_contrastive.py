"""Contrastive search against its definition, and the best of several samples."""

import mlx.core as mx
import numpy as np
import pytest

import zoo
from zoo.errors import PromptError
from zoo.loading import Loaded
from zoo.testing import subject

PROMPT = [5, 6, 7, 8, 9]


@pytest.fixture(params=["llama", "qwen3", "mistral", "mamba"])
def loaded(request, tmp_path):
    return made(request.param, tmp_path)


def made(name, folder, **generation_config):
    of = subject(name)
    return Loaded(of.model, None, of.architecture, of.recipe, {}, folder, generation_config=generation_config)


def by_definition(model, ids, count, alpha, candidates):
    """The new tokens, the whole text read again for each candidate."""
    tokens = list(ids)
    for _ in range(count):
        logits = np.array(model(mx.array([tokens]))[0, -1], np.float64)
        probabilities = np.exp(logits - logits.max())
        probabilities /= probabilities.sum()
        scores = {}
        for token in np.argsort(-probabilities)[:candidates].tolist():
            hidden = np.array(model.backbone(mx.array([[*tokens, token]]))[0], np.float64)
            hidden /= np.linalg.norm(hidden, axis=1, keepdims=True)
            scores[token] = (1 - alpha) * probabilities[token] - alpha * (hidden[:-1] @ hidden[-1]).max()
        tokens.append(max(scores, key=scores.__getitem__))
    return tokens[len(ids) :]


@pytest.mark.parametrize(("alpha", "candidates"), [(0.6, 4), (0.3, 7)])
def test_the_tokens_are_those_of_the_definition(loaded, alpha, candidates):
    found = zoo.generate(loaded, PROMPT, max_tokens=5, penalty_alpha=alpha, top_k=candidates).tokens
    assert found == by_definition(loaded.model, PROMPT, 5, alpha, candidates)
    assert found != zoo.generate(loaded, PROMPT, max_tokens=5).tokens


def test_without_a_penalty_or_a_choice_it_is_greedy(loaded):
    greedy = zoo.generate(loaded, PROMPT, max_tokens=6, logprobs=2)
    for settings in (dict(penalty_alpha=0.0, top_k=4), dict(penalty_alpha=0.9, top_k=1)):
        found = zoo.generate(loaded, PROMPT, strategy="contrastive", max_tokens=6, logprobs=2, **settings)
        assert found.tokens == greedy.tokens and found.finish_reason == "length"
        assert found.logprobs == pytest.approx(greedy.logprobs, abs=1e-4)
        assert [list(each) for each in found.alternatives] == [list(each) for each in greedy.alternatives]


def test_a_prompt_in_pieces_is_remembered_whole(loaded):
    settings = dict(penalty_alpha=0.6, top_k=4, max_tokens=6)
    whole = zoo.generate(loaded, PROMPT * 3, **settings).tokens
    assert zoo.generate(loaded, PROMPT * 3, prefill_chunk=4, **settings).tokens == whole


def test_what_must_not_come_is_no_candidate_however_unlike_the_text(tmp_path):
    loaded = made("llama", tmp_path)
    vocab = loaded.recipe.embedding.vocab
    loaded.generation_config = {"suppress_tokens": [token for token in range(vocab) if token not in (11, 12)]}
    found = zoo.generate(loaded, PROMPT, max_tokens=8, penalty_alpha=0.95, top_k=6).tokens
    assert set(found) <= {11, 12}


def test_the_generation_config_gives_the_penalty(tmp_path):
    loaded = made("llama", tmp_path, penalty_alpha=0.3, top_k=7)
    found = zoo.generate(loaded, PROMPT, strategy="contrastive", max_tokens=6).tokens
    assert found == by_definition(loaded.model, PROMPT, 6, 0.3, 7)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(penalty_alpha=1.5), "`penalty_alpha` must be a number from 0 to 1"),
        (dict(penalty_alpha=0.5, top_k=0), "`top_k` must be a whole number from 1"),
        (dict(penalty_alpha=0.5, temperature=1.0), "`penalty_alpha`|`temperature`"),
        (dict(best_of=0), "`best_of` must be a whole number from 1"),
        (dict(best_of=3, temperature=0.0), "`best_of` samples its texts"),
        (dict(best_of=3, prompt_logprobs=True), "`best_of`|`prompt_logprobs`"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(tmp_path, settings, message):
    with pytest.raises(PromptError, match=message):
        zoo.stream(made("llama", tmp_path), PROMPT, **settings)


@pytest.mark.parametrize("name", ["llama", "mamba", "marian"])
def test_the_best_of_several_samples_has_the_highest_mean(name, tmp_path):
    loaded = made(name, tmp_path)
    settings = dict(max_tokens=5, temperature=1.5, top_k=30)
    samples = [zoo.generate(loaded, PROMPT, seed=seed, logprobs=True, **settings) for seed in (4, 5, 6)]
    found = zoo.generate(loaded, PROMPT, best_of=3, seed=4, **settings)
    ranked = sorted(samples, key=lambda sample: -np.mean(sample.logprobs))
    assert [candidate["tokens"] for candidate in found.candidates] == [sample.tokens for sample in ranked]
    scores = [candidate["score"] for candidate in found.candidates]
    assert scores == pytest.approx([np.mean(sample.logprobs) for sample in ranked], abs=1e-4)
    assert found.tokens == ranked[0].tokens and found.logprobs is None
    assert len({sample.tokens[0] for sample in samples}) > 1


def test_samples_that_end_leave_the_others_to_go_on(tmp_path):
    loaded = made("llama", tmp_path)
    settings = dict(max_tokens=6, temperature=3.0)
    samples = [zoo.generate(loaded, PROMPT, seed=seed, **settings).tokens for seed in (0, 1, 2)]
    end = next(token for token in samples[1][:3] if token not in samples[0] + samples[2])
    found = zoo.generate(loaded, PROMPT, best_of=3, seed=0, stop_tokens=[end], **settings)
    lengths = sorted(len(candidate["tokens"]) for candidate in found.candidates)
    assert lengths == [samples[1].index(end) + 1, 6, 6]
    assert {candidate["finish_reason"] for candidate in found.candidates} == {"stop", "length"}


def test_log_probabilities_are_given_when_asked_for(tmp_path):
    found = zoo.generate(made("llama", tmp_path), PROMPT, best_of=2, seed=1, max_tokens=4, logprobs=2)
    assert len(found.logprobs) == 4 and [len(each) for each in found.alternatives] == [2] * 4
    assert np.mean(found.logprobs) == pytest.approx(found.candidates[0]["score"])
