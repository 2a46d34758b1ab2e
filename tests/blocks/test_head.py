"""Heads of plugins: one that derives from nothing of the zoo's, and one that says it is tied and cannot be."""

import sys
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace

import mlx.core as mx
import mlx.nn as nn
import pytest

from tests.helpers.page_layers import DIM, NORM, VOCAB
from zoo.architecture import Block, hookimpl
from zoo.assemble import assemble
from zoo.errors import RecipeError
from zoo.host.registry import isolated
from zoo.recipe import MLP, Attention, Decoder, Embedding, Encoder, Head, Layer, Spec

LAYER = Layer(Attention(4), MLP(8), NORM, NORM)


@dataclass(frozen=True)
class Labels(Spec):
    kind, name = "head", "labels"
    labels: int = 3


@dataclass(frozen=True)
class Plain(Head):
    kind, name = "head", "plain"


class PlainModule(nn.Module):
    def __init__(self, spec, *, dim, index=0):
        super().__init__()
        self.output = nn.Linear(dim, getattr(spec, "labels", VOCAB), bias=False)

    def __call__(self, x):
        return self.output(x)


@pytest.fixture
def known(monkeypatch):
    module = ModuleType("heads_page")
    module.PlainModule = PlainModule
    monkeypatch.setitem(sys.modules, "heads_page", module)
    blocks = [Block(spec, "heads_page:PlainModule") for spec in (Labels, Plain)]
    return isolated(SimpleNamespace(zoo_blocks=hookimpl(lambda: blocks)))


def test_a_head_needs_nothing_but_to_be_called(known):
    tokens = mx.array([[1, 2, 3]])
    encoder = assemble(Encoder(Embedding(VOCAB, DIM), (LAYER,), NORM, Labels()), known)
    assert encoder(tokens).shape == (1, 3, 3)
    assert assemble(Decoder(Embedding(VOCAB, DIM), (LAYER,), NORM, Plain()), known)(tokens).shape == (
        1,
        3,
        VOCAB,
    )


def test_a_head_that_is_tied_needs_a_way_to_be(known):
    recipe = Decoder(Embedding(VOCAB, DIM), (LAYER,), NORM, Plain(tied=True))
    with pytest.raises(RecipeError, match="head/plain says that it is tied: its module needs a method `tie"):
        assemble(recipe, known)
