"""DPO and ORPO: the formulas, the targets, the reference, and learning to prefer."""

from copy import copy

import mlx.core as mx
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
from zoo.errors import PluginError, PromptError, ZooError
from zoo.tokenizer import load_tokenizer
from zoo.training.examples import Preference
from zoo.training.loop import Stopped
from zoo.training.loss import IGNORED
from zoo.training.objective import example_objective, objective_of
from zoo_tune.objectives.dpo import dpo_loss
from zoo_tune.objectives.orpo import orpo_loss
from zoo_tune.objectives.preferences import answer_logprobs

TRIPLES = [
    ("What is the capital of France?", " Paris.", " It is Rome, I think."),
    ("Two and two?", " Four.", " Five."),
    ("北京在哪里？", "在中国。", "在日本的北方。"),
]


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder):
    return load_tokenizer(tokenizer_folder)


@pytest.fixture
def llama(tokenizer, tmp_path):
    return small("llama", tokenizer, tmp_path)


def preferences():
    return [Preference(f"line {n}", *triple) for n, triple in enumerate(TRIPLES, 1)]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_the_loss_of_dpo_is_the_formula():
    policy, reference = np.array([[-3.0, -4.0], [-7.0, -5.0]]), np.array([[-3.5, -3.5], [-6.0, -5.5]])
    terms = [
        -np.log(sigmoid(0.5 * ((better - r_better) - (worse - r_worse))))
        for (better, worse), (r_better, r_worse) in zip(policy, reference, strict=True)
    ]
    found = dpo_loss(mx.array(policy), mx.array(reference), 0.5)
    assert found.item() == pytest.approx(np.mean(terms), rel=1e-6)


def test_the_loss_of_orpo_is_the_formula_and_is_finite_for_a_certain_answer():
    means = np.array([[-0.5, -1.5], [-2.0, -0.7]])  # log-probabilities a token
    odds = np.exp(means) / (1 - np.exp(means))
    terms = -means[:, 0] - 0.3 * np.log(sigmoid(np.log(odds[:, 0] / odds[:, 1])))
    assert orpo_loss(mx.array(means), 0.3).item() == pytest.approx(terms.mean(), rel=1e-6)
    certain = mx.array([[0.0, -1.0]])
    loss, gradient = mx.value_and_grad(lambda given: orpo_loss(given, 0.3))(certain)
    assert 0 <= loss.item() < 1e-3 and mx.isfinite(gradient).all().item()


def test_log_probabilities_are_sums_over_the_tokens_of_the_answers_alone(llama):
    rows = rows_of(example_objective(llama, "orpo"), llama, preferences())
    found = answer_logprobs(llama.model, *batch_of(example_objective(llama, "orpo"), llama, rows))
    for row, logprobs in zip(rows, found.tolist(), strict=True):
        for answer, logprob in zip((row.chosen, row.rejected), logprobs, strict=True):
            logits = np.array(llama.model(mx.array([answer.ids]))[0], dtype=np.float64)
            logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
            scored = [(place, id) for place, id in enumerate(answer.targets) if id != IGNORED]
            assert logprob == pytest.approx(sum(logits[place, id] for place, id in scored), rel=1e-4)


def test_the_answers_are_the_only_targets_and_end(llama):
    encode = llama.tokenizer.encode
    end = llama.tokenizer.id("<|endoftext|>")
    for example in preferences():
        (row,) = example_objective(llama, "dpo").encode(example, llama, 64)
        for answer, text in ((row.chosen, example.chosen), (row.rejected, example.rejected)):
            told = [id for id in answer.targets if id != IGNORED]
            assert told == [*encode(example.prompt + text)[len(encode(example.prompt)) :], end]
            assert list(answer.ids) == encode(example.prompt + text)


def test_of_a_prompt_of_messages_no_earlier_answer_is_a_target(llama):
    llama.tokenizer = copy(llama.tokenizer)
    llama.tokenizer.chat_template = TEMPLATE
    messages = (
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "Two?"},
    )
    example = Preference("line 1", messages, "Deux", "Three")
    (row,) = example_objective(llama, "dpo").encode(example, llama, 200)
    decode = llama.tokenizer.decode
    assert [
        decode([id for id in answer.targets if id != IGNORED]) for answer in (row.chosen, row.rejected)
    ] == [
        "Deux",
        "Three",
    ]
    assert "Hello" in decode(list(row.chosen.ids))


def test_the_reference_is_the_model_before_tuning_so_that_the_first_loss_is_that_of_no_preference(llama):
    objective = example_objective(llama, "dpo")
    rows = rows_of(objective, llama, preferences())
    losses = losses_of_steps(objective, llama, rows)
    assert losses[0] == pytest.approx(np.log(2), rel=1e-4)
    assert losses[-1] < 0.8 * losses[0]
    again = objective.prepare(llama, rows, lambda: False)
    assert all(
        new.reference != old.reference and old.reference is not None
        for old, new in zip(rows, again, strict=True)
    )


def test_a_reference_is_not_computed_once_it_is_to_stop(llama):
    objective = example_objective(llama, "dpo")
    rows = [row for example in preferences() for row in objective.encode(example, llama, 64)]
    with pytest.raises(Stopped):
        objective.prepare(llama, rows, lambda: True)


@pytest.mark.parametrize("name", ["dpo", "orpo"])
def test_neither_padding_nor_ranks_change_a_preference(llama, name, monkeypatch):
    objective = example_objective(llama, name)
    rows = rows_of(objective, llama, preferences())
    losses_of_steps(objective, llama, rows, steps=2)  # away from the reference
    check_padding_changes_nothing(objective, llama, rows)
    check_ranks_divide_a_batch(objective, llama, rows, monkeypatch)
    assert objective.weight(batch_of(objective, llama, rows)) == len(TRIPLES)


def test_orpo_raises_the_better_answer_above_the_worse_one(llama):
    objective = example_objective(llama, "orpo", {"beta": 1.0})
    rows = rows_of(objective, llama, preferences())
    batch = batch_of(objective, llama, rows)

    def margins():
        logprobs = answer_logprobs(llama.model, *batch)
        return (logprobs[:, 0] - logprobs[:, 1]).mean().item()

    before = margins()
    losses = losses_of_steps(objective, llama, rows)
    assert losses[-1] < 0.8 * losses[0] and margins() > before


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["mamba", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("gpt2", "mixtral"))]
)
def test_other_decoders_learn_preferences_too(tokenizer, tmp_path, name):
    loaded = small(name, tokenizer, tmp_path)
    objective = example_objective(loaded, "dpo")
    losses = losses_of_steps(objective, loaded, rows_of(objective, loaded, preferences()), steps=6)
    assert losses[-1] < losses[0]


def test_options_and_models_that_cannot_be_are_one_line(llama):
    with pytest.raises(PromptError, match="`beta` must be a number of more than 0, got -1"):
        example_objective(llama, "dpo", {"beta": -1})
    with pytest.raises(PromptError, match="objective dpo has no setting 'betta'; did you mean beta"):
        example_objective(llama, "dpo", {"betta": 1})
    with pytest.raises(PluginError, match="objective 'dpo': none of that name trains bert"):
        objective_of(llama.registry.architecture("bert"), "dpo")
    with pytest.raises(ZooError, match="objective dpo trains on the examples of a data file: use `zoo tune`"):
        objective_of(llama.architecture, "dpo")
