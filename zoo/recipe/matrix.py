"""A weight matrix of a block, from which products and packed bytes are counted. Imports no mlx."""

from __future__ import annotations

from zoo.frozen import Frozen, frozen


@frozen()
class Matrix(Frozen):
    """`count` stacked weight matrices (outputs, inputs), in the parameter `name` within their block.

    A token is multiplied by `uses` of them (0: a table that is looked up). `packs`: the layer that holds them has a
    quantized form.
    """

    name: str
    inputs: int
    outputs: int
    count: int = 1
    uses: int = 1
    packs: bool = True

    @property
    def numbers(self) -> int:
        """How many numbers they hold together."""
        return self.count * self.inputs * self.outputs

    @property
    def flops(self) -> int:
        """Floating-point operations a token: two for each multiply-add."""
        return 2 * self.uses * self.inputs * self.outputs
