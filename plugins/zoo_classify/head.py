"""The spec of a classifier's head. Imports no mlx."""

import dataclasses

from zoo.frozen import frozen
from zoo.recipe import Head, Matrix, Spec

POOLINGS = ("first", "mean", "last", "each")


@frozen(kw_only=True)
class ClassifierHead(Head):
    """A logit for each label, of norm(activation(dense(x))) or of x itself.

    There are `vocab` labels; without an `activation` there is no dense layer. `pooling` says which hidden states it reads:
    the "first" token's, the "mean", the "last" token's, or those of "each" token, which then has labels of its own. As a
    module it works at every position.
    """

    kind, name = "head", "classifier"
    predicts_tokens = False
    pooling: str = dataclasses.field(default="first", metadata={"choices": POOLINGS})
    activation: str | None = None
    dense_bias: bool = True
    norm: Spec | None = dataclasses.field(default=None, metadata={"kind": "norm"})

    def matrices(self, dim: int) -> tuple[Matrix, ...]:
        dense = () if self.activation is None else (Matrix("dense", dim, dim, bias=self.dense_bias),)
        return (*super().matrices(dim), *dense)

    def divided(self, dim, share):
        """Each rank has all of it."""
