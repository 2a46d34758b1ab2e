"""Distillation: the divergence, the teacher, and learning from it."""

import mlx.core as mx
import numpy as np
import pytest

from tests.helpers.tuning import (
    batch_of,
    check_padding_changes_nothing,
    check_ranks_divide_a_batch,
    losses_of_steps,
    rows_of,
    small,
)
from zoo.errors import PromptError
from zoo.tokenizer import load_tokenizer
from zoo.training.examples import Completion, TextExample
from zoo.training.loss import IGNORED
from zoo.training.objective import example_objective
from zoo_tune.objectives.distill import divergence


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder):
    return load_tokenizer(tokenizer_folder)


@pytest.fixture
def student(tokenizer, tmp_path):
    return small("llama", tokenizer, tmp_path)


@pytest.fixture
def teacher(tokenizer, tmp_path):
    return small("mamba", tokenizer, tmp_path, seed=1)


EXAMPLES = [
    TextExample("line 1", "Paris is in France."),
    Completion("line 2", "Two and two?", " Four."),
]


def test_the_loss_is_the_divergence_from_the_teacher_times_the_squared_temperature():
    draw = np.random.default_rng(0)
    teacher, student = draw.normal(size=(2, 1, 3, 5))
    targets = np.array([[1, IGNORED, 4]])

    def probabilities(logits):
        raised = np.exp(logits / 2.0)
        return raised / raised.sum(-1, keepdims=True)

    p, q = probabilities(teacher), probabilities(student)
    terms = (p * np.log(p / q)).sum(-1)[0, [0, 2]]
    found = divergence(mx.array(teacher), mx.array(student), mx.array(targets), 2.0)
    assert found.item() == pytest.approx(4 * terms.mean(), rel=1e-4)
    wider = np.concatenate([student, np.full((1, 3, 2), 9.0)], axis=-1)  # a padded vocabulary
    assert divergence(mx.array(teacher), mx.array(wider), mx.array(targets), 2.0).item() == pytest.approx(
        found.item(), rel=1e-6
    )
    assert divergence(mx.array(teacher), mx.array(teacher), mx.array(targets), 2.0).item() == pytest.approx(0)


def test_a_student_comes_closer_to_its_teacher_which_stays(student, teacher, monkeypatch):
    objective = example_objective(student, "distill", {"teacher": teacher})
    rows = rows_of(objective, student, EXAMPLES)
    check_padding_changes_nothing(objective, student, rows)
    check_ranks_divide_a_batch(objective, student, rows, monkeypatch)
    inputs, targets = batch_of(objective, student, rows)
    before = teacher.model(inputs)
    expected = divergence(before, student.model(inputs), targets, 1.0)
    losses = losses_of_steps(objective, student, rows)
    assert losses[0] == pytest.approx(expected.item(), rel=1e-4)
    assert losses[-1] < 0.8 * losses[0]
    assert mx.array_equal(before, teacher.model(inputs))


def test_a_teacher_is_loaded_by_its_source(student, folder):
    with pytest.raises(PromptError, match=r"`teacher`: .*nowhere"):
        example_objective(student, "distill", {"teacher": "./nowhere"})
    with pytest.raises(PromptError, match=r"`teacher` .*: it has another tokenizer: token \d+ is .* in "):
        example_objective(student, "distill", {"teacher": str(folder("llama"))})


def test_a_teacher_that_is_missing_or_no_causal_decoder_is_one_line(student, tokenizer, tmp_path):
    with pytest.raises(PromptError, match="objective distill: give a `teacher`, the model to learn from"):
        example_objective(student, "distill")
    with pytest.raises(PromptError, match=r"`teacher` .*: bert is no causal decoder"):
        example_objective(student, "distill", {"teacher": small("bert", tokenizer, tmp_path)})
    with pytest.raises(PromptError, match="`temperature` must be a number of more than 0, got 0"):
        example_objective(student, "distill", {"temperature": 0})
