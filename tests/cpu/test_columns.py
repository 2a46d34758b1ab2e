"""Vectors as columns: the compiled step computes what the model does."""

import pytest

from tests.helpers.decoded import both
from zoo.cpu import columns
from zoo.testing import same, subject


@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen2"])
def test_vectors_as_columns_give_the_models_logits(name, monkeypatch, cpu):
    monkeypatch.setattr(columns, "prefers_columns", lambda rows, shape: True)
    made = subject(name)
    same(*both(made.model, made.tokens[:, :9]), "the logits")


def test_some_numbers_of_vectors_are_columns(monkeypatch):
    def counts(shape):
        return [rows for rows in range(1, 60) if columns.prefers_columns(rows, shape)]

    monkeypatch.setattr(columns, "blas", lambda: "MKL")
    assert counts((1024, 1024)) == []
    assert counts((4096, 576)) == list(range(4, columns.MOST_BY_SHORT_ROWS + 1))
    assert counts((2048, 1024)) == list(range(4, columns.MOST_COLUMNS + 1))
    monkeypatch.setattr(columns, "blas", lambda: "OpenBLAS")
    assert counts((7, 3)) == list(range(2, columns.MOST_COLUMNS + 1))
    monkeypatch.setattr(columns, "blas", lambda: "none")
    assert counts((7, 3)) == []
