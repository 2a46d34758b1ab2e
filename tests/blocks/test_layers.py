"""Layers of several mixers, feed-forwards with caches, values between layers: the examples of the page, held to the suite."""

import sys
from dataclasses import dataclass
from types import SimpleNamespace

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

from tests.helpers.page_layers import DIM, NORM, VOCAB, blended, decoder, hybrid, made, texts
from zoo.architecture import Block, hookimpl
from zoo.assemble import assemble, build
from zoo.blocks.attention import Attention as AttentionModule
from zoo.blocks.layer import CachedLayer
from zoo.cache import CachePolicy, KVCache, LayerCache, StateCache, WindowCache
from zoo.describe import facts_of, fields_of
from zoo.errors import RecipeError
from zoo.host.registry import default_registry, isolated, using
from zoo.recipe import (
    MLP,
    Attention,
    Embedding,
    Layer,
    LearnedPositions,
    Spec,
)
from zoo.recipe.models import Memory, needs
from zoo.testing import check_architecture, same
from zoo.training.loss import next_token_loss


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hybrid", "blended"])
def test_the_examples_hold_the_suite(known, name):
    results = check_architecture(name, registry=known)
    assert {"cached_decode_equals_full_forward", "padded_row_equals_the_row_alone"} <= {
        r.name for r in results
    }


@pytest.mark.parametrize("recipe", [hybrid, blended])
def test_the_recipe_counts_what_caches_hold(known, page, recipe):
    recipe = recipe(page)
    model = made(recipe)
    cache = model.make_cache(CachePolicy())
    model(texts(5, batch=1), cache)
    parts = [
        part
        for layer in cache
        for part in (layer.parts.values() if isinstance(layer, LayerCache) else [layer])
    ]
    keys = [c for c in parts if isinstance(c, KVCache | WindowCache)]
    states = [c for c in parts if isinstance(c, StateCache)]
    assert sum(c.keys.buffer.shape[1] * c.keys.buffer.shape[3] * 2 for c in keys) == recipe.kv_cache_size(DIM)
    assert sum(array.size for c in states for array in c.state) == recipe.state_size(DIM)
    assert sum(a.size for layer in cache for a in layer.state) == sum(a.size for p in parts for a in p.state)
    assert all(kept.length == kept.offset == 5 for kept in (*cache, *parts))


def test_each_part_gets_the_mask_and_the_cache_of_its_kind(known, page, monkeypatch):
    model, seen = made(hybrid(page)), []
    for kind in (page.FadingMixer, page.ChannelMixModule, AttentionModule):
        plain = kind.__call__

        def spy(self, x, mask=None, cache=None, plain=plain):
            shape = mask if mask is None or isinstance(mask, str) else tuple(mask.shape)
            seen.append((type(self).__name__, shape, type(cache).__name__))
            return plain(self, x, mask, cache)

        monkeypatch.setattr(kind, "__call__", spy)
    model(texts(9), model.make_cache(), mx.array([[1] * 9, [0] * 2 + [1] * 7]))
    attention, state = (2, 1, 9, 9), (2, 9)
    assert seen == [
        ("Attention", attention, "KVCache"),
        ("FadingMixer", state, "StateCache"),
        ("Attention", attention, "KVCache"),
        ("ChannelMixModule", state, "StateCache"),
        ("Attention", attention, "WindowCache"),
        ("FadingMixer", state, "StateCache"),
        ("Attention", attention, "KVCache"),
        ("ChannelMixModule", state, "StateCache"),
    ]
    seen.clear()
    model(texts(9))
    assert {(mask, cache) for name, mask, cache in seen if name != "Attention"} == {(None, "NoneType")}
    assert [mask for name, mask, _ in seen if name == "Attention"] == ["causal", "causal", (9, 9), "causal"]


def test_two_mixers_are_the_sum_of_each_alone(known, page):
    spec = page.TwoMixers(NORM, Attention(4), page.Fading(), (0.25, 3.0))
    layer, x = build(spec, DIM, registry=default_registry()), mx.random.normal((2, 7, DIM))
    alone = dict(attention=layer.attention(layer.norm(x), "causal"), memory=layer.memory(layer.norm(x)))
    masks = dict(attention="causal", memory=None)
    expected = x + 0.25 * alone["attention"] + 3.0 * alone["memory"]
    same(layer(x, masks, dict.fromkeys(masks)), expected, "sum")


def test_zoo_show_tells_of_every_part(known, page):
    told = {fact.key: fact.text for fact in fields_of(hybrid(page))}
    assert told["layer"] == "two-mixers ×2, residual ×2, in turn"
    assert "fading" in told["layer.memory"] and "channel-mix" in told["layer.feedforward"]
    assert facts_of(hybrid(page)).value("cache.state") == 256  # four vectors of sixteen numbers of four bytes


def test_every_parameter_has_a_gradient(known, page):
    for recipe in (hybrid, blended):
        model, tokens = made(recipe(page)), texts(9)
        _, gradients = nn.value_and_grad(model, next_token_loss)(model, tokens[:, :-1], tokens[:, 1:])
        for path, gradient in tree_flatten(gradients):
            assert mx.abs(gradient).max().item() > 0, path


def test_needs_are_what_the_spec_declares(page):
    first, second, third, _ = map(needs, hybrid(page).layers)
    assert first.memories == (Memory("attention", None, False), Memory("memory", None, True))
    assert third.memories[0] == Memory("attention", 6, False) and third.caches == ("attention", "memory")
    assert second.by_part and second.caches == ("mixer", "feedforward")

    @dataclass(frozen=True)
    class Inside(Spec):
        kind, name = "sublayer", "inside"
        mixer: Spec

    @dataclass(frozen=True)
    class Outside(Spec):
        kind, name = "layer", "outside"
        sublayer: Spec

    nested = needs(Outside(Inside(Attention(4, window=3))))
    assert nested.memories == (Memory("", 3, False),) and nested.caches == ("sublayer.mixer",)
    usual = needs(Layer(Attention(4), MLP(8), NORM, NORM))
    assert usual.memories == (Memory("", None, False),) and usual.caches == ("mixer",) and not usual.by_part


@pytest.mark.parametrize("window", [None, 4])
def test_a_layer_of_one_piece_is_handed_its_mask_and_makes_its_cache(known, page, window):
    class Whole(nn.Module):
        def __init__(self, spec, *, dim, index=0):
            super().__init__()
            self.inside = build(Attention(4, window=spec.window), dim, registry=default_registry())

        def make_cache(self, policy=None):
            return self.inside.make_cache(policy)

        def __call__(self, x, mask=None, cache=None):
            return x + self.inside(x, mask, cache)

    @dataclass(frozen=True)
    class OnePiece(Spec):
        kind, name = "layer", "one-piece"
        window: int | None = None

    page.Whole = Whole
    block = SimpleNamespace(zoo_blocks=hookimpl(lambda: [Block(OnePiece, "layers_page:Whole")]))
    with using(isolated(block)):
        model, tokens = made(decoder(OnePiece(window), OnePiece())), texts(11)
    cache, mask = model.make_cache(), mx.array([[1] * 8, [0] * 3 + [1] * 5])
    assert type(cache[0]) is (WindowCache if window else KVCache)
    whole = model(tokens)
    same(model(tokens[:, :7])[:, :7], whole[:, :7], "what comes later is not seen")
    found = [model(tokens[:, :8], cache, mask), model(tokens[:, 8:], cache)]
    same(mx.concatenate(found, axis=1)[:1], whole[:1], "cached")
    same(mx.concatenate(found, axis=1)[1:, 3:], model(tokens[1:, 3:]), "padded")


def test_a_layers_own_cache_may_hold_more_than_its_parts(known, page):
    class Counted(LayerCache):
        steps = 0

    class Counting(page.TwoMixersLayer):
        def make_cache(self, policy=None):
            return Counted({name: self[name].make_cache(policy) for name in ("attention", "memory")})

        def __call__(self, x, mask, cache):
            if isinstance(cache, Counted):
                cache.steps += 1
            return super().__call__(x, mask, cache)

    model, tokens = made(decoder(page.TwoMixers(NORM, Attention(4), page.Fading()))), texts(6)
    plain = model.layers[0]
    parts = dict(norm=plain.norm, attention=plain.attention, memory=plain.memory)
    model.layers[0] = Counting(plain.spec, dim=DIM, **parts)
    cache = model.make_cache()
    found = [model(tokens[:, :4], cache), model(tokens[:, 4:], cache)]
    same(mx.concatenate(found, axis=1), model(tokens), "logits")
    assert cache[0].steps == 2 and cache[0].length == 6


@pytest.mark.parametrize("base", [nn.Module, CachedLayer])
def test_a_layer_without_any_has_a_cache_that_holds_nothing(known, base):
    class Through(base):
        def __init__(self, spec, *, dim, index=0, **parts):
            super().__init__(*([spec] if base is CachedLayer else []))

        def __call__(self, x, mask=None, cache=None):
            return 2 * x

    @dataclass(frozen=True)
    class Doubled(Spec):
        kind, name = "layer", "doubled"

    sys.modules["layers_page"].Through = Through
    block = SimpleNamespace(zoo_blocks=hookimpl(lambda: [Block(Doubled, "layers_page:Through")]))
    attention = Layer(Attention(4), MLP(8), NORM, NORM)
    positions = Embedding(VOCAB, DIM, positions=LearnedPositions(32))
    recipe = decoder(Doubled(), attention, Doubled(), embedding=positions)
    with using(isolated(block)):
        model, tokens = made(recipe), texts(7)
    cache = model.make_cache()
    found = [model(tokens[:, :4], cache), model(tokens[:, 4:], cache)]
    same(mx.concatenate(found, axis=1), model(tokens), "logits")
    assert [len(layer.state) for layer in cache] == [0, 2, 0]


def test_a_part_named_as_nn_module_names_something_is_told_in_one_line(page):
    class Stateful(nn.Module):
        def __init__(self, spec, *, dim, index=0, state):
            super().__init__()
            self.state = state

    @dataclass(frozen=True)
    class Named(Spec):
        kind, name = "layer", "named"
        state: Spec

    page.Stateful = Stateful
    block = SimpleNamespace(zoo_blocks=hookimpl(lambda: [Block(Named, "layers_page:Stateful")]))
    with using(isolated(block)), pytest.raises(RecipeError, match=r"layers\.0: .*'state'"):
        assemble(decoder(Named(Attention(4))), default_registry())
