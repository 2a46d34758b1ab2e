"""Small random models with a tokenizer, and what is asked of every objective of examples."""

import random

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import pytest
from mlx.utils import tree_flatten

from zoo.assemble import assemble
from zoo.host.registry import default_registry
from zoo.loading import Loaded
from zoo.runtime import ranks
from zoo.testing import numbers_of, randomise, subject
from zoo.training.data_parallel import part_of

TEMPLATE = (
    "{% for message in messages %}[{{ message.role }}] {{ message.content }}<|endoftext|>{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)


def small(name, tokenizer, folder, seed=0):
    """The smallest preset of an architecture with random weights and the vocabulary of a tokenizer."""
    architecture = default_registry().architecture(name)
    recipe = subject(name).recipe.with_vocab(tokenizer.vocab_size)
    model = assemble(recipe, default_registry())
    randomise(model, seed)
    return Loaded(model, tokenizer, architecture, recipe, dict(numbers_of(architecture)), folder)


def rows_of(objective, loaded, examples, length=64):
    """The rows of examples, prepared if the objective prepares them."""
    rows = [row for example in examples for row in objective.encode(example, loaded, length)]
    return rows if objective.prepare is None else objective.prepare(loaded, rows, lambda: False)


def batch_of(objective, loaded, rows, seed=0):
    return objective.collate(rows, loaded, random.Random(seed))


def loss_of(objective, loaded, rows):
    return objective.loss(loaded.model, *batch_of(objective, loaded, rows)).item()


def check_padding_changes_nothing(objective, loaded, rows):
    """The loss of rows of different lengths is the mean of each row's own, by weight."""
    assert len({row.length for row in rows}) > 1
    weights = [objective.weight(batch_of(objective, loaded, [row])) for row in rows]
    singles = [loss_of(objective, loaded, [row]) for row in rows]
    mean = sum(w * loss for w, loss in zip(weights, singles, strict=True)) / sum(weights)
    assert objective.weight(batch_of(objective, loaded, rows)) == sum(weights)
    assert loss_of(objective, loaded, rows) == pytest.approx(mean, rel=1e-4)


def check_ranks_divide_a_batch(objective, loaded, rows, monkeypatch):
    """The gradients of a batch are the mean of those of its parts, by weight, one of them perhaps without a row."""
    batch, step = batch_of(objective, loaded, rows), nn.value_and_grad(loaded.model, objective.loss)
    whole, gradients = step(loaded.model, *batch)
    expected = dict(tree_flatten(gradients))
    largest = max(mx.abs(array).max().item() for array in expected.values())
    for size in (2, len(rows) + 1):
        loss, found = 0.0, dict.fromkeys(expected, 0.0)
        for rank in range(size):
            with monkeypatch.context() as patch:
                patch.setattr(ranks, "rank", lambda rank=rank: rank)
                patch.setattr(ranks, "size", lambda size=size: size)
                part = part_of(batch, objective.examples_in(batch))
            if share := objective.weight(part) / objective.weight(batch):
                one, gradients = step(loaded.model, *part)
                loss += one.item() * share
                for path, array in tree_flatten(gradients):
                    found[path] += array * share
        assert loss == pytest.approx(whole.item(), rel=1e-4)
        for path, array in expected.items():
            assert mx.allclose(found[path], array, rtol=1e-3, atol=1e-5 * largest), path


def losses_of_steps(objective, loaded, rows, steps=8, rate=3e-3):
    """The losses of some steps of Adam on one batch; the model is changed."""
    batch, optimizer = batch_of(objective, loaded, rows), optim.Adam(rate)
    step = nn.value_and_grad(loaded.model, objective.loss)
    found = []
    for _ in range(steps):
        loss, gradients = step(loaded.model, *batch)
        optimizer.update(loaded.model, gradients)
        mx.eval(loaded.model.state, optimizer.state)
        found.append(loss.item())
    return found
