"""A plugin whose every architecture has one fault that the conformance suite must find; its blocks stand here, too."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import mlx.core as mx
import mlx.nn as nn

import zoo_llama
from zoo.architecture import Block, Rename, hookimpl
from zoo.blocks.attention import Attention as AttentionModule
from zoo.blocks.embedding import Embedding as EmbeddingModule
from zoo.cache import StateCache
from zoo.recipe import Attention, Embedding, Spec


@dataclass(frozen=True)
class Undercounted(Attention):
    """Says that it caches half of what it does."""

    kind, name = "mixer", "undercounted"

    def kv_cache_size(self, dim):
        return super().kv_cache_size(dim) // 2


@dataclass(frozen=True)
class Hoarding(Attention):
    """Its cache keeps the inputs of every token besides."""

    kind, name = "mixer", "hoarding"


class HoardingAttention(AttentionModule):
    def __call__(self, x, mask=None, cache=None):
        if cache is not None:
            before = getattr(cache, "inputs", None)
            cache.inputs = x if before is None else mx.concatenate([before, x], axis=1)
        return super().__call__(x, mask, cache)


@dataclass(frozen=True)
class Mean(Spec):
    """A running mean whose state is as large as it says (`counted`) or not, in pieces of `chunk` with a seam or not."""

    kind, name = "mixer", "mean"
    recurrent: ClassVar[bool] = True
    counted: int = field(default=1, metadata={"least": 0})
    chunk: int = field(default=0, metadata={"least": 0})

    def own_parameters(self, dim):
        return dim * dim

    def state_size(self, dim):
        return self.counted * dim


@dataclass(frozen=True)
class Declared(Mean):
    """The same, which says where its pieces end."""

    name = "mean-declared"

    @property
    def chunks(self):
        return (self.chunk,)


class RunningMean(nn.Module):
    """state ← state / 2 + x / 2. The fault: after each `chunk` tokens of one call the state is forgotten."""

    def __init__(self, spec, *, dim, index=0):
        super().__init__()
        self.spec = spec
        self.output = nn.Linear(dim, dim, bias=False)

    def make_cache(self, policy=None):
        return StateCache(1, policy)

    def __call__(self, x, mask=None, cache=None):
        state = cache[0] if cache is not None and cache[0] is not None else mx.zeros_like(x[:, 0])
        states = []
        for t in range(x.shape[1]):
            if self.spec.chunk and t and t % self.spec.chunk == 0:
                state = mx.zeros_like(state)
            new = (state + x[:, t]) / 2
            state = new if mask is None else mx.where(mask[:, t, None], new, state)
            states.append(state)
        if cache is not None:
            cache[0] = state
            cache.advance(x.shape[1])
        return self.output(mx.stack(states, axis=1))


@dataclass(frozen=True)
class Forgotten(Spec):
    """A mixer that is no attention and makes no cache."""

    kind, name = "mixer", "forgotten"


class WithoutCache(nn.Module):
    def __init__(self, spec, *, dim, index=0):
        super().__init__()

    def __call__(self, x, mask=None, cache=None):
        return x


@dataclass(frozen=True)
class Typed(Embedding):
    """Adds a row of a second table."""

    name = "typed-faulty"

    def own_parameters(self, dim):
        return super().own_parameters(dim) + 2 * dim


class TypedEmbedding(EmbeddingModule):
    """The fault: the row is taken out of the matrix, which may be packed."""

    def __init__(self, spec, *, dim, index=0, **parts):
        super().__init__(spec, dim=dim, index=index, **parts)
        self.types = nn.Embedding(2, dim)

    def __call__(self, tokens, offset=0):
        return super().__call__(tokens, offset) + self.types.weight[0]


def mixer(spec):
    """LLaMA with this mixer in every layer."""
    return lambda config: zoo_llama.llama(config).change_layers(mixer=spec)


def attention(kind):
    """LLaMA with its attention described by another spec."""

    def recipe(config):
        def changed(index, layer):
            return dict(
                mixer=kind(heads=layer.mixer.heads, kv_heads=layer.mixer.kv_heads, rope=layer.mixer.rope)
            )

        return zoo_llama.llama(config).change_layers(changed)

    return recipe


def typed(config):
    recipe = zoo_llama.llama(config)
    return recipe.change(embedding=Typed(vocab=recipe.embedding.vocab, dim=recipe.embedding.dim))


RECIPES = {
    "undercounted": attention(Undercounted),
    "hoarding": attention(Hoarding),
    "sound": mixer(Mean()),
    "small-state": mixer(Mean(counted=0)),
    "large-state": mixer(Mean(counted=2)),
    "seam-at-64": mixer(Mean(chunk=64)),
    "seam-at-128": mixer(Mean(chunk=128)),
    "seam-at-200": mixer(Declared(chunk=200)),
    "without-cache": mixer(Forgotten()),
    "reads-packed": typed,
}
WEIGHTS = (
    Rename("types.*", "embedding.types.*"),
    Rename("mean.{i}.output.*", "layers.{i}.mixer.output.*"),
    *zoo_llama.WEIGHTS,
)


@hookimpl
def zoo_blocks():
    yield Block(Undercounted, "zoo.blocks.attention:Attention")
    yield Block(Hoarding, "tests.helpers.faulty:HoardingAttention")
    yield Block(Mean, "tests.helpers.faulty:RunningMean")
    yield Block(Declared, "tests.helpers.faulty:RunningMean")
    yield Block(Forgotten, "tests.helpers.faulty:WithoutCache")
    yield Block(Typed, "tests.helpers.faulty:TypedEmbedding")


@hookimpl
def zoo_architectures():
    llama = next(zoo_llama.zoo_architectures())
    for name, recipe in RECIPES.items():
        weights = WEIGHTS if name != "undercounted" and name != "hoarding" else llama.weights
        yield replace(
            llama, name=name, model_types=(), recipe=recipe, weights=weights, mlx_weights=None, gguf=None
        )
