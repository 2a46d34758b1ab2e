"""The table of three kinds of Transformer: which architecture is of which, told from the recipes."""

import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
NAMED = {
    "encoder-only": {"bert"},
    "decoder-only": {"gpt2", "llama", "mixtral", "deepseek-v3"},
    "encoder-decoder": {"transformer", "t5", "marian"},
    "prefix": {"prefix-lm"},
    "masked diffusion": {"llada"},
    "recurrent": {"lstm", "gru", "mamba"},
}


@pytest.fixture
def kinds(monkeypatch):
    """The module behind the table."""
    monkeypatch.syspath_prepend(DOCS)
    from figures import kinds

    yield kinds
    for name in [name for name in sys.modules if name.partition(".")[0] == "figures"]:
        del sys.modules[name]


def test_each_architecture_is_of_one_kind(kinds):
    found = kinds.by_kind()
    assert set(found) == set(NAMED)
    every = [name for names in found.values() for name in names]
    assert len(every) == len(set(every))
    for kind, names in NAMED.items():
        assert names <= set(found[kind]), kind


def test_what_a_token_sees_is_told_from_the_recipe(kinds):
    assert kinds.causality("bert", "encoder") == kinds.causality("transformer", "encoder") == "full"
    assert kinds.causality("llama", "decoder") == kinds.causality("transformer", "decoder") == "causal"
