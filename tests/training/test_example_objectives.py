"""Objectives of single examples: what is a target, padding, and learning; masked tokens and translations."""

from copy import copy

import numpy as np
import pytest

from tests.helpers.tuning import (
    TEMPLATE,
    batch_of,
    check_padding_changes_nothing,
    check_ranks_divide_a_batch,
    losses_of_steps,
    rows_of,
    small,
)
from zoo.errors import NothingToPredict, PromptError
from zoo.tokenizer import load_tokenizer
from zoo.training.examples import Completion, Conversation, TextExample, TranslationPair
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


def test_masked_tokens_are_learned_and_need_a_head_and_a_mask(bert, monkeypatch):
    objective = example_objective(bert)
    rows = rows_of(objective, bert, texts())
    check_ranks_divide_a_batch(objective, bert, rows, monkeypatch)
    losses = losses_of_steps(objective, bert, rows)
    assert losses[-1] < 0.8 * losses[0]
    bert.recipe = bert.recipe.change(head=None)
    with pytest.raises(NothingToPredict, match="has no head that predicts masked tokens"):
        example_objective(bert)


def test_translations_are_targets_closed_by_the_end_and_sources_are_not(transformer, monkeypatch):
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
    check_ranks_divide_a_batch(objective, transformer, rows, monkeypatch)
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


def completions():
    said = [
        ("Two and two?", " Four."),
        ("The capital of France is", " Paris, as you know."),
        ("北京", "在中国。"),
    ]
    return [Completion(f"line {n}", *pair) for n, pair in enumerate(said, 1)]


def test_a_prefix_lm_sees_the_whole_prompt_and_is_asked_for_the_completion(tokenizer, tmp_path, monkeypatch):
    loaded = small("prefix-lm", tokenizer, tmp_path)
    objective = example_objective(loaded)
    rows = rows_of(objective, loaded, completions())
    _, targets, prefix = batch_of(objective, loaded, rows)
    for example, expected, length in zip(completions(), targets.tolist(), prefix.tolist(), strict=True):
        assert length == len(tokenizer.encode(example.prompt))
        told = [id for id in expected if id != IGNORED]
        assert expected[length - 1] == told[0] and tokenizer.decode(told) == example.completion
    check_padding_changes_nothing(objective, loaded, rows)
    check_ranks_divide_a_batch(objective, loaded, rows, monkeypatch)
    losses = losses_of_steps(objective, loaded, rows)
    assert losses[-1] < 0.8 * losses[0]


def test_a_text_of_a_prefix_lm_has_a_prefix_of_up_to_its_half_drawn_anew(tokenizer, tmp_path):
    loaded = small("prefix-lm", tokenizer, tmp_path)
    objective = example_objective(loaded)
    rows = rows_of(objective, loaded, texts())
    drawn = set()
    for seed in range(20):
        _, targets, prefix = batch_of(objective, loaded, rows, seed)
        drawn.add(tuple(prefix.tolist()))
        for row, expected, length in zip(rows, targets.tolist(), prefix.tolist(), strict=True):
            assert 1 <= length <= max(row.length // 2, 1)
            shown = [IGNORED] * (length - 1) + [*row.targets[length - 1 :]]
            assert expected == shown + [IGNORED] * (len(expected) - len(shown))
    assert len(drawn) > 1


@pytest.fixture
def llada(tokenizer, tmp_path):
    return small("llada", tokenizer, tmp_path)


def test_masked_diffusion_masks_answers_alone_and_ends_them_with_the_padding(llada):
    objective, words = example_objective(llada), llada.tokenizer
    mask, end = words.id("[MASK]"), words.id("<|endoftext|>")
    rows = rows_of(objective, llada, completions())
    shares = set()
    for seed in range(10):
        inputs, targets, weights = (given.tolist() for given in batch_of(objective, llada, rows, seed))
        for example, shown, expected, weight in zip(completions(), inputs, targets, weights, strict=True):
            start = len(words.encode(example.prompt))
            assert shown[:start] == words.encode(example.prompt)
            assert expected[:start] == [IGNORED] * start and not any(weight[:start])
            answer = [*words.encode(example.prompt + example.completion)[start:], end]
            assert expected[start:] == answer + [end] * (len(expected) - start - len(answer))
            masked = [place for place, id in enumerate(shown) if id == mask]
            assert masked and [place for place, value in enumerate(weight) if value] == masked
            share = len(masked) / (len(expected) - start)
            assert all(weight[place] == pytest.approx(1 / share) for place in masked)
            shares.add(share)
    assert min(shares) < 0.3 and max(shares) > 0.7


def test_the_loss_of_masked_diffusion_is_the_weighted_mean_over_the_answers(llada, monkeypatch):
    objective = example_objective(llada)
    rows = rows_of(objective, llada, completions())
    inputs, targets, weights = batch = batch_of(objective, llada, rows)
    logits = np.array(llada.model(inputs), dtype=np.float64)
    logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
    total = 0.0
    for row, column in zip(*np.nonzero(np.array(weights)), strict=True):
        total -= weights[row, column].item() * logits[row, column, targets[row, column].item()]
    assert objective.loss(llada.model, *batch).item() == pytest.approx(
        total / objective.weight(batch), rel=1e-4
    )
    check_ranks_divide_a_batch(objective, llada, rows, monkeypatch)
    losses = losses_of_steps(objective, llada, rows)
    assert losses[-1] < 0.8 * losses[0]


def test_masked_diffusion_takes_each_answer_of_a_conversation_after_all_before_it(llada):
    llada.tokenizer = words = copy(llada.tokenizer)
    words.chat_template = TEMPLATE
    said = ["Hi", "Hello", "Two?", "Deux"]
    roles = ["user", "assistant"] * 2
    messages = tuple({"role": role, "content": text} for role, text in zip(roles, said, strict=True))
    first, second = example_objective(llada).encode(Conversation("line 1", messages), llada, 200)
    assert words.decode(first.ids[first.start :]) == "Hello"
    assert words.decode(second.ids[second.start :]) == "Deux"
    assert "Deux" not in words.decode(first.ids) and "Hello" in words.decode(second.ids[: second.start])


def test_a_text_that_is_cut_is_not_followed_by_ends_to_unmask(llada):
    objective = example_objective(llada)
    rows = objective.encode(texts()[0], llada, 8)
    assert len(rows) > 1 and all(row.length <= 8 and row.start == 0 for row in rows)
    long, short = rows[0], objective.encode(texts()[0], llada, 4)[0]
    expected = batch_of(objective, llada, [long, short])[1].tolist()
    assert expected == [long.ids, short.ids + [IGNORED] * (long.length - short.length)]
