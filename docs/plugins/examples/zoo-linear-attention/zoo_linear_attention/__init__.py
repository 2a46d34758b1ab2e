"""LLaMA with linear attention, told as a difference from LLaMA. Imports no mlx."""

from dataclasses import dataclass
from typing import ClassVar

import zoo_llama
from zoo.architecture import Architecture, Block, Drawing, FactSource, ModuleProbe, Preset, hookimpl
from zoo.errors import RecipeError
from zoo.recipe import Matrix, Spec, repeat


@dataclass(frozen=True)
class LinearAttention(Spec):
    """Attention without a softmax, whose keys and values sum up to one matrix a head (Katharopoulos et al., 2020)."""

    kind, name = "mixer", "linear-attention"
    recurrent: ClassVar[bool] = True
    heads: int

    def check_width(self, dim):
        if dim % self.heads:
            raise RecipeError(f"heads: {self.heads} does not divide the width, {dim}")

    def own_parameters(self, dim):
        return 4 * dim * dim

    def matrices(self, dim):
        return tuple(Matrix(name, dim, dim) for name in ("query", "key", "value", "output"))

    def state_size(self, dim):
        return dim * (dim // self.heads + 1)


def linear_llama(config):
    """LLaMA's recipe with the mixer changed: no rotary positions, no key/value heads."""
    recipe = zoo_llama.llama(config)
    layer = recipe.layers[0]
    layer = layer.change(mixer=LinearAttention(layer.mixer.heads))
    return recipe.change(layers=repeat(layer, len(recipe.layers)), context=None)


def memory_facts(recipe):
    """How many tokens of a cache of keys and values would take as much room as the states."""
    states = [
        spec for layer in recipe.layers for _, spec in layer.walk() if isinstance(spec, LinearAttention)
    ]
    if states:
        from zoo.describe import Fact

        tokens = sum(spec.state_size(recipe.dim) for spec in states) // (2 * recipe.dim * len(states))
        yield Fact("state.tokens", "state as a cache of", tokens, "tokens")


@hookimpl
def zoo_architectures():
    """The architecture: a variant of LLaMA."""
    yield Architecture(
        name="linear-llama",
        base="llama",
        summary="LLaMA with linear attention: a state of constant size in the place of a cache",
        model_types=("linear_llama",),
        recipe=linear_llama,
        weights=zoo_llama.WEIGHTS,
        presets=(
            Preset("tiny", "for tests", config=zoo_llama.TINY),
            Preset("pocket", "what `zoo train` starts from", config=zoo_llama.POCKET),
        ),
        references=("Katharopoulos et al., 2020, arXiv:2006.16236",),
        published="2020-06",
        api=1,
    )


@hookimpl
def zoo_blocks():
    """The mixer, and the module that runs it."""
    yield Block(LinearAttention, "zoo_linear_attention.block:LinearAttention", "linear attention")


@hookimpl
def zoo_facts():
    """A row of the fact sheet."""
    yield FactSource("linear-attention", "zoo_linear_attention:memory_facts", "the size of the states")


@hookimpl
def zoo_drawings():
    """A box of the block diagram."""
    yield Drawing(LinearAttention, "zoo_linear_attention.drawing:linear_attention")


@hookimpl
def zoo_probes():
    """What a trace shows of the mixer."""
    yield ModuleProbe(
        "zoo_linear_attention.block:LinearAttention", "zoo_linear_attention.probe:LinearAttentionProbe"
    )
