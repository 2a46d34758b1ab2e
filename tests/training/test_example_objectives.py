"""Objectives of single examples: what is a target, padding, and learning; masked tokens and translations."""

import pytest

from tests.helpers.tuning import (
    batch_of,
    check_padding_changes_nothing,
    losses_of_steps,
    rows_of,
    small,
)
from zoo.errors import NothingToPredict, PromptError
from zoo.tokenizer import load_tokenizer
from zoo.training.examples import TextExample, TranslationPair
from zoo.training.loss import IGNORED
from zoo.training.masked_lm import continues_word
from zoo.training.objective import example_objective
from zoo_translation.objective import translation_loss

TEXTS = ["The capital of France is Paris.", "Paris", "北京是中国的首都。"]
PAIRS = [("The cat sleeps.", "Le chat dort."), ("Yes.", "Oui, bien sûr."), ("I love you.", "我爱你。")]


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder):
    return load_tokenizer(tokenizer_folder)


@pytest.fixture
def bert(tokenizer, tmp_path):
    return small("bert", tokenizer, tmp_path)


@pytest.fixture
def transformer(tokenizer, tmp_path):
    return small("transformer", tokenizer, tmp_path)


def texts(*given):
    return [TextExample(f"line {n}", text) for n, text in enumerate(given or TEXTS, 1)]


def pairs():
    return [TranslationPair(f"line {n}", *pair) for n, pair in enumerate(PAIRS, 1)]


def test_masked_tokens_are_whole_words_at_least_one_a_text(bert):
    objective = example_objective(bert)
    rows = rows_of(objective, bert, texts())
    for seed in range(20):
        inputs, targets, padding = batch_of(objective, bert, rows, seed)
        for row, shown, expected, tokens in zip(
            rows, inputs.tolist(), targets.tolist(), padding.tolist(), strict=True
        ):
            assert tokens == [1] * row.length + [0] * (len(tokens) - row.length)
            masked = {place for place, id in enumerate(expected) if id != IGNORED}
            assert masked and all(expected[place] == row.ids[place] for place in masked)
            assert all(shown[place] == row.ids[place] for place in range(row.length) if place not in masked)
            for word in row.words:
                assert len(masked & {*range(word.start, word.stop)}) in (0, word.stop - word.start)


def test_words_are_found_by_the_places_of_tokens_and_halves_of_a_character_are_one():
    text = "to naïve 中国"
    offsets = [(0, 2), (2, 5), (5, 6), (5, 6), (6, 8), (9, 10), (9, 10), (10, 11)]
    assert continues_word(text, offsets) == [False, False, True, True, True, False, True, False]


def test_a_long_text_is_several_rows_of_masked_tokens_and_loses_nothing(bert):
    objective = example_objective(bert)
    whole, parts = (objective.encode(texts()[0], bert, length) for length in (64, 5))
    assert [id for row in parts for id in row.ids] == whole[0].ids and len(parts) > 1
    assert all(row.length <= 5 and row.words[-1].stop == row.length for row in parts)


def test_padding_changes_no_masked_token(bert):
    objective = example_objective(bert)
    rows = rows_of(objective, bert, texts())
    inputs, targets, padding = batch_of(objective, bert, rows)
    together = objective.loss(bert.model, inputs, targets, padding).item() * objective.weight(
        (inputs, targets)
    )
    alone = 0.0
    for row, (shown, expected) in zip(rows, zip(inputs, targets, strict=True), strict=True):
        single = shown[None, : row.length], expected[None, : row.length]
        alone += objective.loss(bert.model, *single).item() * objective.weight(single)
    assert together == pytest.approx(alone, rel=1e-4)


def test_masked_tokens_are_learned_and_need_a_head_and_a_mask(bert):
    objective = example_objective(bert)
    losses = losses_of_steps(objective, bert, rows_of(objective, bert, texts()))
    assert losses[-1] < 0.8 * losses[0]
    bert.recipe = bert.recipe.change(head=None)
    with pytest.raises(NothingToPredict, match="has no head that predicts masked tokens"):
        example_objective(bert)


def test_translations_are_targets_closed_by_the_end_and_sources_are_not(transformer):
    objective = example_objective(transformer)
    rows = rows_of(objective, transformer, pairs())
    sources, targets, mask = batch_of(objective, transformer, rows)
    words = transformer.tokenizer
    for pair, source, target, tokens in zip(
        PAIRS, sources.tolist(), targets.tolist(), mask.tolist(), strict=True
    ):
        kept = [id for id in target if id != IGNORED]
        assert kept == [*words.encode(pair[1]), words.id("<|endoftext|>")]
        assert source[: sum(tokens)] == words.encode(pair[0])
    assert objective.loss is translation_loss
    check_padding_changes_nothing(objective, transformer, rows)
    losses = losses_of_steps(objective, transformer, rows)
    assert losses[-1] < 0.8 * losses[0]


def test_a_translation_that_is_too_long_is_cut_and_keeps_its_end(transformer):
    objective = example_objective(transformer)
    (whole,), (row,) = (objective.encode(pairs()[0], transformer, length) for length in (64, 6))
    assert row.length == 6 and row.ids[1][-1] == transformer.tokenizer.id("<|endoftext|>")
    assert row.cut == sum(map(len, whole.ids)) - sum(map(len, row.ids)) > 0 == whole.cut


def test_languages_are_refused_where_a_model_has_none(transformer):
    with pytest.raises(PromptError, match=r"`target_language`: .* has no languages to choose"):
        example_objective(transformer, options={"target_language": "fr"})
