"""From a checkpoint's tensors to the parameters of its layer for the token after the next. Imports no mlx."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zoo.weights import Ignore, Join, Rename, Rule, Tensors, fill, matches
from zoo_deepseek.rules import LAYER, WEIGHTS


@dataclass(frozen=True)
class OnlyPredictionLayer(Rule):
    """The layer past the last that predicts a further token, as if it were the first; all other tensors are left out.

    `recipe.index` is its number among the checkpoint's layers.
    """

    layer: str

    def forward(self, source: Tensors, target: Tensors, recipe: Any, join: Join) -> None:
        own = {
            fill(self.layer + "*", values | {"i": "0"}): source[name]
            for name, values in matches(self.layer + "*", source)
            if values["i"] == str(recipe.index)
        }
        source.clear()
        source.update(own)

    def backward(self, source: Tensors, target: Tensors, recipe: Any, join: Join) -> None:
        pass


FIRST = "[model.]layers.0."
PREDICTION_WEIGHTS = (
    OnlyPredictionLayer(LAYER),
    Rename(FIRST + "enorm.*", "embedding_norm.*"),
    Rename(FIRST + "hnorm.*", "hidden_norm.*"),
    Rename(FIRST + "eh_proj.*", "projection.*"),
    Rename(FIRST + "shared_head.norm.*", "norm.*"),
    # Copies of the model's own embedding and head, which it shares.
    Ignore(FIRST + "embed_tokens.weight"),
    Ignore(FIRST + "shared_head.head.weight"),
    *WEIGHTS[1:],
)
