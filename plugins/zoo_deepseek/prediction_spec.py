"""The spec of the layer for the token after the next, and its recipe. Imports no mlx."""

from dataclasses import dataclass
from typing import ClassVar

from zoo.recipe import Layer, Matrix, Spec
from zoo_deepseek.recipes import deepseek_v3, layers_of


@dataclass(frozen=True)
class PredictionLayer(Spec):
    """The layer that predicts the token after the next (DeepSeek-V3, 2024, section 2.2). Embedding and head are the model's.

    A token's vector and the hidden state that predicted it, each normalised, are projected together to one vector, which
    `layers`, one, takes in. `index` is its number in the checkpoint. Parameters: `projection` (D, 2D).
    """

    kind, name = "model", "next-token-prediction"
    dim: int
    vocab: int
    index: int
    embedding_norm: Spec
    hidden_norm: Spec
    layers: tuple[Layer, ...]
    norm: Spec
    context: int | None = None
    head: ClassVar[None] = None

    def own_parameters(self, dim: int) -> int:
        return 2 * dim * dim

    def matrices(self, dim: int) -> tuple[Matrix, ...]:
        return (Matrix("projection", 2 * dim, dim),)


def prediction_recipe(config):
    """The layer after the last, which predicts one token further, where the checkpoint has it."""
    model = deepseek_v3(config)
    index = len(model.layers)
    if config.count("num_nextn_predict_layers", 0, least=0) < 1:
        raise config.error(
            "num_nextn_predict_layers", "says that there is no layer for the token after the next"
        )
    if not config.has_tensor(f"layers.{index}.eh_proj.", default=True):
        raise config.error(
            "num_nextn_predict_layers", f"is more than the files hold: they have no layers.{index}.eh_proj"
        )
    return PredictionLayer(
        dim=model.dim,
        vocab=model.vocab,
        index=index,
        embedding_norm=model.norm,
        hidden_norm=model.norm,
        layers=(layers_of(config)(index),),
        norm=model.norm,
        context=model.context,
    )
