"""Models of the blocks of the page about layers, docs/plugins/layers.md."""

import mlx.core as mx

from zoo.architecture import Architecture, Block, Preset, Rename, hookimpl
from zoo.assemble import assemble
from zoo.host.registry import default_registry
from zoo.recipe import (
    Attention,
    Decoder,
    Embedding,
    Head,
    Layer,
    RMSNorm,
    RoPE,
)
from zoo.testing import randomise

VOCAB, DIM = 61, 16
NORM = RMSNorm()


def decoder(*layers, embedding=None, **more):
    return Decoder(embedding or Embedding(VOCAB, DIM), layers, NORM, Head(), **more)


def hybrid(page, window=6):
    """Two mixers and then a feed-forward that remembers, windows in the second pair of layers."""

    def two(window):
        return page.TwoMixers(NORM, Attention(4, 2, rope=RoPE(), window=window), page.Fading(0.7), (0.5, 1.5))

    mixed = Layer(Attention(4, rope=RoPE()), page.ChannelMix(20), NORM, NORM)
    return decoder(two(None), mixed, two(window), mixed.change(placement="post"))


def blended(page):
    """A value of the first layer in the later ones, and a vector of each token for every layer."""
    first = Layer(page.Blended(first=True), page.Narrow(6), NORM, NORM)
    later = first.change(mixer=dict(first=False))
    embedding = page.LayeredEmbedding(VOCAB, DIM, depth=3, narrow=6)
    return decoder(first, later, later, embedding=embedding)


class PageBlocks:
    """A plugin of the page's blocks and two architectures made of them."""

    def __init__(self, page):
        self.page = page

    @hookimpl
    def zoo_blocks(self):
        for spec, module in (
            *(("TwoMixers", "TwoMixersLayer"), ("Fading", "FadingMixer"), ("Blended", "BlendedMixer")),
            *(("ChannelMix", "ChannelMixModule"), ("Narrow", "NarrowFeedForward")),
            ("LayeredEmbedding", "LayeredEmbeddingModule"),
        ):
            yield Block(getattr(self.page, spec), f"layers_page:{module}")

    @hookimpl
    def zoo_architectures(self):
        for name, recipe in (("hybrid", hybrid), ("blended", blended)):
            yield Architecture(
                name=name,
                summary="of the page",
                recipe=lambda config, recipe=recipe: (config.get("any"), recipe(self.page))[1],
                weights=(Rename("model.*", "*"),),
                presets=(Preset("tiny", config=dict(any=1)),),
            )


def made(recipe, seed=0):
    model = assemble(recipe, default_registry())
    randomise(model, seed)
    return model


def texts(length, batch=2):
    return mx.random.randint(0, VOCAB, (batch, length), key=mx.random.key(3))
