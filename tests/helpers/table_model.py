"""A decoder that is a table: the logits of the next token for each token. A pass takes microseconds."""

from pathlib import Path

import mlx.core as mx
import mlx.nn as nn

from zoo.blocks.model import Model
from zoo.loading import Loaded
from zoo.testing import subject


class Table(Model, nn.Module):
    """Its hidden state is the token, one-hot; it keeps no caches."""

    def __init__(self, vocab, seed):
        super().__init__()
        self.table = 2 * mx.random.normal((vocab, vocab), key=mx.random.key(seed))

    def make_cache(self, policy=None):
        return []

    def backbone(self, tokens, cache=None, **more):
        return mx.eye(self.table.shape[0])[tokens]

    def head(self, hidden):
        return hidden @ self.table


def table_model(vocab, seed):
    """A `Loaded` without a tokenizer whose model is a table."""
    made = subject("llama")
    recipe = made.recipe.with_vocab(vocab)
    return Loaded(
        Table(vocab, seed), None, made.architecture, recipe, {}, Path("table"), registry=made.registry
    )
