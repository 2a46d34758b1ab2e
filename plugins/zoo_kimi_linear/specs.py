"""The spec of Kimi Delta Attention, and the rules of its tensors. Imports no mlx."""

from dataclasses import replace
from typing import Any, ClassVar

from zoo.frozen import frozen
from zoo.recipe import Cut, Matrix, outputs
from zoo.weights import Join, OfBlock, Rename, Rule, Tensors, fill, matches
from zoo_deepseek.rules import LAYER
from zoo_qwen3_next.specs import GatedDeltaNet

CHUNK = 32  # tokens that are read at once: of the computation, not of the model


@frozen()
class KimiDeltaNet(GatedDeltaNet):
    """A gated delta rule where each number of a key fades at a rate of its own (Kimi Linear, 2025).

    Alpha and the gate come from short vectors, `alpha_down` and `z_down`, of `value_dim` numbers; the gate is a sigmoid. Each
    head has queries and keys of its own. `dt_bias` is (H·K,).
    """

    name = "kimi-delta-net"
    chunks: ClassVar[tuple[int, ...]] = (CHUNK,)

    @property
    def title(self):
        """The paper's name."""
        return "KDA (Kimi Delta Attention)"

    def own_parameters(self, dim):
        return super().own_parameters(dim) + self.heads * (self.key_dim - 1)

    def matrices(self, dim):
        keys, values, rank = self.heads * self.key_dim, self.heads * self.value_dim, self.value_dim
        widths = dict(q=keys, k=keys, v=values, beta=self.heads, alpha_down=rank, z_down=rank)
        return (
            *(Matrix(name, dim, width) for name, width in widths.items()),
            Matrix("alpha", rank, keys),
            Matrix("z", rank, values),
            Matrix("output", values, dim),
        )

    def divided(self, dim, share):
        """By heads; the short vectors are whole on every rank."""
        division = super().divided(dim, share)
        first, last = share.inputs("key_heads", self.heads, self.value_dim)
        keys = (first * self.key_dim, last * self.key_dim)
        cuts = {**division.cuts, **outputs("alpha", keys), "dt_bias": Cut(0, (keys,))}
        return replace(division, cuts=cuts)


@frozen()
class OfMixer(OfBlock):
    """The same where layers of both kinds have tensors of the same names: each is one of its own layer's block."""

    def forward(self, source: Tensors, target: Tensors, recipe: Any, join: Join) -> None:
        kinds = {str(index): isinstance(layer.mixer, self.spec) for index, layer in enumerate(recipe.layers)}
        own = {
            name: source.pop(name) for name, values in matches(LAYER + "*", source) if kinds.get(values["i"])
        }
        super().forward(own, target, recipe, join)
        source.update(own)


@frozen()
class Flat(Rename):
    """A tensor (1, 1, H, 1) to its numbers, (H,)."""

    def loaded(self, tensor: Any) -> Any:
        return tensor.reshape(-1)

    def saved(self, parameter: Any) -> Any:
        return parameter.reshape(1, 1, -1, 1)


@frozen()
class ThreeConvolutions(Rule):
    """The convolutions of queries, keys and values as one, (kernel, E); stored (E/3, 1, kernel) each, or, where `axis` is 2, (E/3, kernel, 1).

    `source` has "{part}" in the place of q, k and v.
    """

    source: str
    target: str
    axis: int = 1

    def names(self, values: dict[str, str]) -> list[str]:
        """The three names of a layer."""
        return [fill(self.source, values | {"part": part}) for part in "qkv"]

    def forward(self, source: Tensors, target: Tensors, recipe: Any, join: Join) -> None:
        for name, values in matches(self.source, source):
            names = self.names(values)
            if name in source and all(each in source for each in names):
                each = [source.pop(one).squeeze(self.axis).T for one in names]
                target[fill(self.target, values)] = join(each, 1)

    def backward(self, source: Tensors, target: Tensors, recipe: Any, join: Join) -> None:
        for name, values in matches(self.target, source):
            spec, whole = recipe.layers[int(values["i"])].mixer, source.pop(name).T  # (E, kernel)
            ends = [0, *(spec.heads * spec.key_dim * n for n in (1, 2)), spec.channels]
            for one, start, end in zip(self.names(values), ends, ends[1:], strict=False):
                part = whole[start:end]
                target[one] = part[:, None] if self.axis == 1 else part[:, :, None]
