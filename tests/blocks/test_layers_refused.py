"""Recipes whose layers cannot be handed what their parts need are refused by name."""

from dataclasses import dataclass
from types import SimpleNamespace

import mlx.nn as nn
import pytest

from tests.helpers.page_layers import DIM, NORM, VOCAB, PageBlocks, blended, decoder, hybrid, made, texts
from zoo.architecture import Block, hookimpl
from zoo.assemble import assemble
from zoo.errors import PluginError, RecipeError
from zoo.host.registry import default_registry, isolated, using
from zoo.recipe import (
    MLP,
    Attention,
    CrossAttention,
    CrossLayer,
    Embedding,
    Encoder,
    Experts,
    Layer,
    MoE,
    Router,
    Spec,
)


def test_a_part_without_a_cache_or_a_name_of_its_own_is_named(known, page, monkeypatch):
    with monkeypatch.context() as changed:
        changed.delattr(page.ChannelMixModule, "make_cache")
        with pytest.raises(RecipeError, match=r"layers\.1\.feedforward: feedforward/\S+ has no make_cache"):
            made(hybrid(page))
    model = made(hybrid(page))
    layer = model.layers[0]
    layer.renamed = layer.pop("memory")
    with pytest.raises(PluginError, match=r"layers\.0: the module does not keep its part memory"):
        model.make_cache()


@dataclass(frozen=True)
class Plain(Spec):
    """A layer that knows of one mixer alone."""

    kind, name = "layer", "plain"
    mixer: Spec
    feedforward: Spec


@pytest.fixture
def plain(known, page):
    """The zoo's and the page's blocks, and one that runs `Plain`."""

    class PlainLayer(nn.Module):
        def __init__(self, spec, *, dim, index=0, mixer, feedforward):
            super().__init__()
            self.mixer, self.feedforward = mixer, feedforward

        def __call__(self, x, mask=None, cache=None):
            return x + self.feedforward(self.mixer(x, mask, cache))

    page.PlainLayer = PlainLayer
    block = SimpleNamespace(zoo_blocks=hookimpl(lambda: [Block(Plain, "layers_page:PlainLayer")]))
    with using(isolated(block, PageBlocks(page))):
        yield


def test_a_layer_that_takes_one_cache_is_given_no_two(plain, page):
    recipe = decoder(Plain(Attention(4), MLP(8)), Plain(Attention(4), page.ChannelMix(8)))
    with pytest.raises(
        RecipeError, match=r"layers\.1: mixer and feedforward each have a cache, and layer/plain"
    ):
        assemble(recipe, default_registry())
    assert assemble(recipe.change(causality="full"), default_registry())  # where nothing is cached
    with pytest.raises(
        RecipeError, match="feedforward: feedforward/channel-mix has a cache, which layer/cross"
    ):
        CrossLayer(Attention(4), page.ChannelMix(8), NORM, NORM, cross=CrossAttention(4), cross_norm=NORM)


def test_a_cache_deep_in_a_part_is_named(plain, page):
    inner = MoE(Router(experts=2, top_k=1), Experts(count=2, hidden=8), shared=page.ChannelMix(8))
    with pytest.raises(RecipeError, match=r"mixer and feedforward\.shared each have a cache"):
        assemble(decoder(Layer(Attention(4), inner, NORM, NORM)), default_registry())
    two = page.TwoMixers(Plain(Attention(4), MLP(8)), Attention(4), page.Fading())
    with pytest.raises(RecipeError, match=r"layers\.0\.norm\.mixer: has a cache, which layer/two-mixers"):
        decoder(two)


def test_what_no_earlier_layer_gives_cannot_be_taken(page):
    first = Layer(page.Blended(first=True), MLP(8), NORM, NORM)
    later = first.change(mixer=dict(first=False))
    assert decoder(first, later).layers[1].takes == ("first_value",)
    with pytest.raises(RecipeError, match=r"layers\.0: takes 'first_value', which no earlier layer gives"):
        decoder(later, first)
    with pytest.raises(RecipeError, match=r"layers\.0: takes 'narrow'"):
        decoder(Layer(Attention(4), page.Narrow(), NORM, NORM))
    with pytest.raises(
        RecipeError, match=r"layers\.0\.mixer: gives 'first_value', which layer/plain does not"
    ):
        decoder(Plain(page.Blended(first=True), MLP(8)))


def test_an_encoder_hands_nothing_on(page):
    for layer in (
        Layer(Attention(4), page.ChannelMix(8), NORM, NORM),
        Layer(page.Blended(first=True), MLP(8), NORM, NORM),
    ):
        with pytest.raises(RecipeError, match=r"layers\.1: layer/residual is about masks by part"):
            Encoder(Embedding(VOCAB, DIM), (layer.change(mixer=Attention(4), feedforward=MLP(8)), layer))


def test_a_value_that_was_promised_and_not_given_is_named(known, page, monkeypatch):
    model = made(blended(page))
    monkeypatch.setattr(page.BlendedMixer, "__call__", lambda self, x, mask=None, cache=None, passed=None: x)
    with pytest.raises(
        PluginError, match=r"layers\.0: layer/residual says that it gives 'first_value', and did not"
    ):
        model(texts(3))
