"""Beam search, its constraints, and the settings that a translation takes."""

import math
from types import SimpleNamespace

import mlx.core as mx
import numpy as np
import pytest

import zoo
from tests.helpers.tables import GARDEN, Table
from zoo.cache import CachePolicy, CrossCache, KVCache, WindowCache
from zoo.errors import PromptError
from zoo.generation.sampling import LogitsProcessors
from zoo.generation.settings import Constraints, Settings, constraints_of
from zoo.generation.strategies.beam import BeamConfig, BeamSearch, Hypothesis, likeliest, run_searches
from zoo.loading import Loaded
from zoo.testing import subject
from zoo_translation.tokenizers import LanguageTokens, TargetLanguagePrefix

SOURCE = [5, 6, 7, 8, 9]


def chain(vocab=4, repetition_penalty=1.0, no_repeat_ngram_size=0, **constraints):
    settings = Settings(repetition_penalty=repetition_penalty, no_repeat_ngram_size=no_repeat_ngram_size)
    return LogitsProcessors(settings, Constraints(**constraints), vocab)


def search(beams, limit=4, table=GARDEN, **settings):
    processors = chain(eos_ids=frozenset([0]), max_tokens=limit, **settings)
    made = BeamSearch(processors, beams)
    list(run_searches(Table(table, 3), [made]))
    return made.found()[0]


def best_of_all(limit, penalty):
    """The best score of every text there is, by trying each."""
    found = []

    def grow(tokens, total):
        for token in range(4):
            here = total + math.log(GARDEN[tokens[-1] if tokens else 3][token])
            if token == 0 or len(tokens) + 1 == limit:
                found.append((here / (len(tokens) + 1) ** penalty, (*tokens, token)))
            else:
                grow((*tokens, token), here)

    grow((), 0.0)
    return max(found)


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 2.0])
def test_enough_beams_find_the_best_of_all_texts(penalty):
    score, tokens = best_of_all(4, penalty)
    found = search(BeamConfig(32, length_penalty=penalty, early_stopping="never"))
    assert found.tokens == tokens
    assert found.score == pytest.approx(score, abs=1e-5)


def test_two_beams_find_what_greedy_search_does_not():
    assert search(BeamConfig(2)).tokens == (2, 0)
    assert GARDEN[3].index(max(GARDEN[3])) == 1


def test_a_length_penalty_favours_long_texts():
    short, long = (search(BeamConfig(4, length_penalty=p, early_stopping="never")) for p in (0.0, 3.0))
    assert len(short.tokens) < len(long.tokens) == 4


def test_an_early_stop_takes_the_first_texts_that_end():
    never = search(BeamConfig(3, length_penalty=2.0, early_stopping="never"), limit=6)
    early = search(BeamConfig(3, length_penalty=2.0, early_stopping=True), limit=6)
    assert early.score < never.score


def test_the_least_number_of_tokens_holds_back_the_end():
    assert len(search(BeamConfig(2), min_tokens=3).tokens) >= 3
    assert 0 not in search(BeamConfig(2), min_tokens=3).tokens[:2]


def test_the_largest_scores_come_first_and_removed_ones_not_at_all():
    scores = mx.array([[1.0, -math.inf, 5.0], [4.0, 2.0, -math.inf]])
    assert likeliest(scores, 3) == [(0, 2, 5.0), (1, 0, 4.0), (1, 1, 2.0)]
    assert len(likeliest(scores, 50)) == 4


def test_hopeless_only_when_enough_have_finished():
    beams = BeamConfig(2, length_penalty=1.0)
    finished = [Hypothesis((1,), -1.0), Hypothesis((2,), -2.0)]
    assert not beams.cannot_improve(-50.0, finished[:1], 5, 10)
    assert beams.cannot_improve(-11.0, finished, 5, 10)  # −11/5 < −2
    assert not beams.cannot_improve(-9.0, finished, 5, 10)  # −9/5 > −2
    assert not BeamConfig(2, 1.0, "never").cannot_improve(-11.0, finished, 5, 10)  # −11/10 > −2
    assert BeamConfig(2, 1.0, True).cannot_improve(-0.1, finished, 5, 10)


def left(processors, text, vocab=8):
    """Which tokens are left after a text."""
    scores = processors.after(text)(mx.zeros((1, vocab)))
    return [token for token in range(vocab) if np.array(scores)[0, token] > -np.inf]


def test_each_row_is_held_to_its_own_text():
    made = chain(8, no_repeat_ngram_size=2, prompt=(7,), max_tokens=9, bad_words=((5,), (2, 6)))
    assert left(made, [1, 2, 1]) == [0, 1, 3, 4, 6, 7] and left(made, [7, 3, 2]) == [0, 1, 2, 3, 4, 7]


def test_first_and_last_tokens_are_forced():
    made = chain(8, prompt=(2,), max_tokens=4, first_token=6, last_tokens=(0, 1))
    assert left(made, []) == [6] and left(made, [6, 3, 3]) == [0, 1]
    assert len(left(made, [6])) == 8


def test_a_text_that_is_given_has_no_first_token_to_force():
    assert len(left(chain(8, prompt=(2, 3), max_tokens=4, first_token=6), [])) == 8


def test_repeating_a_token_costs():
    made = chain(repetition_penalty=2.0, prompt=(1,), max_tokens=9)
    scores = made.after([2])(mx.array([[3.0, 4.0, -1.0, -3.0]]))
    assert scores.tolist() == [[3.0, 2.0, -2.0, -3.0]]


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"bad_words_ids": [5]}, "bad_words_ids"),
        ({"bad_words_ids": [[500]]}, "bad_words_ids"),
        ({"forced_bos_token_id": -1}, "forced_bos_token_id"),
        ({"min_length": -1}, "min_length"),
        ({"min_new_tokens": True}, "min_new_tokens"),
    ],
)
def test_a_malformed_generation_config_is_named(values, key):
    with pytest.raises(PromptError, match=key):
        constraints_of(values, 100, eos_ids=frozenset(), prompt=(0,), max_tokens=5)


@pytest.mark.parametrize(
    ("key", "value"),
    [("no_repeat_ngram_size", "two"), ("repetition_penalty", "much"), ("repetition_penalty", 10**400)],
)
def test_a_malformed_setting_of_a_generation_config_is_named(loaded, key, value):
    loaded.generation_config = {key: value}
    with pytest.raises(PromptError, match=f"generation_config.json: {key}"):
        zoo.generate(loaded, SOURCE, beams=2)


@pytest.fixture(scope="module")
def made():
    return subject("marian")


@pytest.fixture
def loaded(made, tmp_path):
    return Loaded(made.model, None, made.architecture, made.recipe, {"eos_token_id": 3}, tmp_path / "model")


def test_the_source_is_read_once_and_the_target_a_token_a_pass(loaded):
    model, passes = loaded.model, []

    class Counting:
        def __getattr__(self, name):
            return getattr(model, name)

        def encode(self, source, *rest):
            passes.append(("encode", source.shape))
            return model.encode(source, *rest)

        def decode(self, tokens, *rest):
            passes.append(("decode", tokens.shape))
            return model.decode(tokens, *rest)

    loaded.model = Counting()
    zoo.generate(loaded, SOURCE, max_tokens=5, min_tokens=5)
    assert passes == [("encode", (1, 5)), *[("decode", (1, 1))] * 5]
    passes.clear()
    zoo.generate(loaded, SOURCE, max_tokens=4, min_tokens=4, beams=3)
    assert passes == [("encode", (1, 5)), ("decode", (1, 1)), *[("decode", (3, 1))] * 3]


def test_beams_come_as_drafts_and_then_as_tokens(loaded):
    steps = list(zoo.stream(loaded, SOURCE, max_tokens=6, min_tokens=6, beams=3))
    drafts = [step for step in steps if step.token is None]
    assert drafts and all(step.draft is not None for step in drafts)
    assert steps[len(drafts) :] == [step for step in steps if step.token is not None]
    assert steps[-1].finish_reason in ("stop", "length")
    assert [step.finish_reason for step in steps[:-1]] == [None] * (len(steps) - 1)


def test_a_draw_repeats_with_its_seed(loaded):
    drawn = [
        zoo.generate(loaded, SOURCE, max_tokens=8, temperature=2.0, seed=seed).tokens for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_the_start_token_is_the_recipe_s_unless_the_folder_says_otherwise(loaded):
    target = [loaded.recipe.start]
    first = zoo.generate(loaded, SOURCE, max_tokens=1).tokens
    logits = loaded.model(mx.array([SOURCE]), mx.array([target]))[0, -1]
    assert first == [int(mx.argmax(logits))]
    loaded.generation_config = {"decoder_start_token_id": 77, "eos_token_id": 3}
    logits = loaded.model(mx.array([SOURCE]), mx.array([[77]]))[0, -1]
    assert zoo.generate(loaded, SOURCE, max_tokens=1).tokens == [int(mx.argmax(logits))]
    loaded.generation_config = {"decoder_start_token_id": 5000}
    with pytest.raises(PromptError, match="decoder_start_token_id"):
        zoo.generate(loaded, SOURCE)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beams": 0}, "`beams` must be a whole number from 1 to 256"),
        ({"beams": 10**6}, "`beams` must be a whole number from 1 to 256"),
        ({"beams": 2, "temperature": 1.0}, "`beams`: beam search does not sample"),
        ({"max_tokens": 0}, "`max_tokens`"),
        ({"min_tokens": 9, "max_tokens": 4}, "`min_tokens` must be from 0 to 4"),
        ({"early_stopping": "soon"}, "`early_stopping`"),
        ({"length_penalty": math.nan}, "`length_penalty`"),
        ({"source_language": "en"}, "`source_language`: model has no languages"),
        ({"target_language": "fr"}, "`target_language`: model has no languages"),
        ({"prompt_lookup": 4}, "`prompt_lookup`: beam generation has no such setting"),
        ({"beams": 2, "logit_bias": {4: 1.0}}, "`logit_bias` cannot be given with several `beams`"),
        ({"beams": 2, "regex": "a+"}, "`regex` cannot be given with several `beams`"),
        ({"length_penalty": 2.0}, "`length_penalty` needs several `beams`"),
        ({"beams": 1, "return_sequences": 2}, "`return_sequences` needs several `beams`"),
        ({"beams": 4, "return_sequences": 5}, "`return_sequences` must be from 1 to 4"),
        ({"beams": 4, "beam_groups": 3}, "`beam_groups` must divide the 4 `beams`, got 3"),
        ({"beams": 4, "beam_groups": 2}, "`beam_groups` needs a `diversity_penalty`"),
        ({"beams": 4, "diversity_penalty": 0.5}, "`diversity_penalty` needs several `beam_groups`"),
        ({"prefill_chunk": 4}, "`prefill_chunk`: an encoder-decoder reads its source in one piece"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_before_anything_runs(loaded, settings, message):
    with pytest.raises(PromptError, match=message):
        zoo.stream(loaded, SOURCE, **settings)


def test_a_continuation_takes_beams_and_refuses_languages(tmp_path):
    other = subject("llama")
    loaded = Loaded(other.model, None, other.architecture, other.recipe, {}, tmp_path / "model")
    assert len(zoo.generate(loaded, SOURCE, max_tokens=5, beams=3).tokens) == 5
    with pytest.raises(PromptError, match="`target_language`: model has no languages"):
        zoo.stream(loaded, SOURCE, target_language="fr")
    with pytest.raises(
        PromptError, match="`beams`: autoregressive generation has no such setting; it is a setting of beam"
    ):
        zoo.stream(loaded, SOURCE, beams=3, prompt_lookup=2)


def test_a_target_longer_than_its_learned_positions_ends_with_them(tmp_path):
    other = subject("bart")
    loaded = Loaded(other.model, None, other.architecture, other.recipe, {}, tmp_path / "model")
    assert len(zoo.generate(loaded, SOURCE, max_tokens=500).tokens) == 64
    with pytest.raises(PromptError, match="65 tokens"):
        zoo.generate(loaded, [5] * 65)


def words(languages):
    """A stand-in for a tokenizer with languages."""
    return SimpleNamespace(
        languages=languages,
        eos_ids=frozenset([3]),
        special_tokens={},
        decode=lambda ids: " ".join(map(str, ids)),
        detokenizer=lambda: SimpleNamespace(add=str, finish=str),
    )


def test_languages_mark_the_source_and_begin_the_target(loaded):
    codes = {"en": 100, "fr": 101}
    loaded.tokenizer = words(LanguageTokens(codes, lambda text: [10, 11], end=3, source="en"))
    target = zoo.generate(loaded, "hello", target_language="fr", max_tokens=4).tokens
    assert target[0] == 101
    assert target == zoo.generate(loaded, [100, 10, 11, 3], target_language="fr", max_tokens=4).tokens
    assert (
        zoo.generate(
            loaded, "hello", target_language="fr", source_language="fr", max_tokens=4, beams=2
        ).tokens[0]
        == 101
    )
    with pytest.raises(PromptError, match="`target_language`: say which"):
        zoo.stream(loaded, "hello")
    with pytest.raises(PromptError, match="`source_language`: the model has no language 'de'"):
        zoo.stream(loaded, "hello", target_language="fr", source_language="de")
    loaded.generation_config = {"forced_bos_token_id": 100}
    assert zoo.generate(loaded, "hello", max_tokens=4).tokens[0] == 100
    assert zoo.generate(loaded, "hello", max_tokens=4, target_language="fr").tokens[0] == 101


def test_a_mark_of_the_target_may_stand_in_the_source(loaded):
    loaded.tokenizer = words(TargetLanguagePrefix({"fra": 120}, lambda text: [10, 3]))
    expected = zoo.generate(loaded, [120, 10, 3], max_tokens=4).tokens
    assert zoo.generate(loaded, "hello", target_language="fra", max_tokens=4).tokens == expected
    with pytest.raises(PromptError, match="`source_language`: this model recognises"):
        zoo.stream(loaded, "hello", source_language="eng")


@pytest.mark.parametrize(
    "cache", [KVCache(CachePolicy()), WindowCache(3), CrossCache(KVCache())], ids=lambda c: type(c).__name__
)
def test_chosen_rows_of_a_cache_are_what_they_were(cache):
    keys = mx.random.normal((2, 1, 4, 8))
    own = getattr(cache, "mixer", cache)
    own.update_and_fetch(keys, keys)
    cache.padding = mx.array([0, 2])
    cache.select(mx.array([1, 1, 0]))
    assert cache.offset.tolist() == [2, 2, 4]
    after, _ = own.update_and_fetch(mx.zeros((3, 1, 1, 8)), mx.zeros((3, 1, 1, 8)))
    held = after.shape[2] - 1
    for row, before in enumerate((1, 1, 0)):
        assert mx.array_equal(after[row, :, :held], keys[before, :, -held:])


def test_one_source_serves_every_row():
    cache = CrossCache(KVCache())
    cache.keys = cache.values = mx.ones((1, 1, 4, 8))
    cache.select(mx.array([0, 0, 0]))
    assert cache.keys.shape[0] == 1
