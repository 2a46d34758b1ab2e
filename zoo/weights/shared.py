"""What checkpoints hold of layers that read an earlier layer's keys and values. Imports no mlx."""

from __future__ import annotations

from zoo.frozen import frozen
from zoo.recipe.models import Model
from zoo.recipe.shared import SharedKeyValueAttention
from zoo.weights import Ignore, Join, Tensors
from zoo.weights.patterns import matches


@frozen()
class IgnoreShared(Ignore):
    """Tensors of layer `{i}` that the model does not need where the layer reads an earlier layer's keys and values."""

    def forward(self, source: Tensors, target: Tensors, recipe: Model, join: Join) -> None:
        for name, values in matches(self.source, source):
            index = int(values["i"])
            if index < len(recipe.layers) and isinstance(
                getattr(recipe.layers[index], "mixer", None), SharedKeyValueAttention
            ):
                del source[name]
