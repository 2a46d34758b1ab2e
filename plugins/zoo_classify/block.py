"""The head of a classifier. Axes: B batch, S length, D width, C labels."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo.blocks.activation import activation
from zoo.blocks.head import Head
from zoo_classify import head as specs


class ClassifierHead(Head):
    """norm(activation(dense(x))), then the logits of labels; the first three only where the spec has them."""

    def __init__(self, spec: specs.ClassifierHead, *, dim: int, index: int = 0, norm: Any = None) -> None:
        super().__init__(spec, dim=dim, index=index)
        if spec.activation is not None:
            self.dense = nn.Linear(dim, dim, bias=spec.dense_bias)
            self.activation = activation(spec.activation)
        self.norm = norm  # None is no part

    def __call__(self, x: mx.array) -> mx.array:  # (B, S, D) -> (B, S, C)
        if "dense" in self:
            x = self.activation(self.dense(x))
        if "norm" in self:
            x = self.norm(x)
        return super().__call__(x)
