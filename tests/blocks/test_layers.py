"""Layers of several mixers, feed-forwards with caches, values between layers: the examples of the page, held to the suite."""

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

from zoo.architecture import Architecture, Block, Preset, Rename, hookimpl
from zoo.assemble import assemble, build
from zoo.blocks.attention import Attention as AttentionModule
from zoo.cache import CachePolicy, CrossCache, KVCache, LayerCache, StateCache, WindowCache
from zoo.errors import PluginError, PromptError, RecipeError
from zoo.insight.facts import facts
from zoo.integrations import mlx_lm as integration
from zoo.loading import Loaded
from zoo.recipe import (
    MLP,
    Attention,
    CrossAttention,
    CrossLayer,
    Decoder,
    Embedding,
    Encoder,
    Experts,
    Head,
    Layer,
    LearnedPositions,
    MoE,
    RMSNorm,
    RoPE,
    Router,
    Spec,
)
from zoo.recipe.memory import Memory, needs
from zoo.registry import isolated, using
from zoo.testing import check_architecture, randomise, same
from zoo.training.loss import next_token_loss

PAGE = Path(__file__).parents[2] / "docs" / "plugins" / "layers.md"
VOCAB, DIM = 61, 16
NORM = RMSNorm()


@pytest.fixture(scope="module")
def page():
    """The code of the page, as a module."""
    module = sys.modules["layers_page"] = ModuleType("layers_page")
    for code in re.findall(
        r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    ):
        exec(compile(code, str(PAGE), "exec"), vars(module))
    yield module
    del sys.modules["layers_page"]


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


@pytest.fixture
def known(page):
    """The zoo's plugins and the page's."""
    with using(isolated(PageBlocks(page))) as found:
        yield found


def made(recipe, seed=0):
    model = assemble(recipe)
    randomise(model, seed)
    return model


def texts(length, batch=2):
    return mx.random.randint(0, VOCAB, (batch, length), key=mx.random.key(3))


# The suite


@pytest.mark.parametrize("name", ["hybrid", "blended"])
def test_the_examples_hold_the_suite(known, name):
    results = check_architecture(name, known=known)
    assert {"cached_decode_equals_full_forward", "padded_row_equals_the_row_alone"} <= {
        r.name for r in results
    }


@pytest.mark.parametrize("recipe", [hybrid, blended])
def test_the_recipe_counts_what_caches_hold(known, page, recipe):
    recipe = recipe(page)
    model = made(recipe)
    cache = model.make_cache(CachePolicy())
    model(texts(5, batch=1), cache)
    parts = [part for one in cache for part in (one.parts.values() if isinstance(one, LayerCache) else [one])]
    keys = [c for c in parts if isinstance(c, KVCache | WindowCache)]
    states = [c for c in parts if isinstance(c, StateCache)]
    assert sum(c.keys.shape[1] * c.keys.shape[3] * 2 for c in keys) == recipe.cached(DIM)
    assert sum(array.size for c in states for array in c.state) == recipe.carried(DIM)
    assert sum(a.size for one in cache for a in one.state) == sum(a.size for c in parts for a in c.state)
    assert all(one.length == one.offset == 5 for one in (*cache, *parts))


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
    layer, x = build(spec, DIM), mx.random.normal((2, 7, DIM))
    alone = dict(attention=layer.attention(layer.norm(x), "causal"), memory=layer.memory(layer.norm(x)))
    masks = dict(attention="causal", memory=None)
    expected = x + 0.25 * alone["attention"] + 3.0 * alone["memory"]
    same(layer(x, masks, dict.fromkeys(masks)), expected, "sum")


def test_zoo_show_tells_of_every_part(known, page):
    told = facts(hybrid(page))
    assert told["layer"] == "two-mixers ×2, residual ×2 in turn"
    assert "fading" in told["layer.memory"] and "channel-mix" in told["layer.feedforward"]
    assert told["cache at any length"] == "256 B"  # four vectors of sixteen numbers of four bytes


def test_every_parameter_has_a_gradient(known, page):
    for recipe in (hybrid, blended):
        model, tokens = made(recipe(page)), texts(9)
        _, gradients = nn.value_and_grad(model, next_token_loss)(model, tokens[:, :-1], tokens[:, 1:])
        for path, gradient in tree_flatten(gradients):
            assert mx.abs(gradient).max().item() > 0, path


# The cache of several


def test_a_layers_cache_is_its_parts_together():
    parts = dict(one=KVCache(), two=StateCache(1), three=WindowCache(2))
    cache = LayerCache(parts)
    assert list(cache) == list(parts.values()) and cache["two"] is parts["two"]
    assert cache.length == 0 and cache.offset == 0 and cache.padding is None and cache.state == []
    cache.padding = mx.array([0, 2])
    assert all(one.padding is cache.padding for one in parts.values())
    keys = mx.random.normal((2, 1, 4, 8))
    for name in ("one", "three"):
        parts[name].update_and_fetch(keys, keys)
    parts["two"][0] = mx.array([[1.0], [2.0]])
    parts["two"].advance(4)
    assert cache.length == 4 and cache.offset.tolist() == [4, 2] and len(cache.state) == 5
    assert cache.start(1) == 0 and parts["three"].start(1) == 3
    cache.select(mx.array([1, 1, 0]))
    assert cache.offset.tolist() == [2, 2, 4] and parts["two"][0].tolist() == [[2.0], [2.0], [1.0]]
    assert parts["one"].keys.shape[0] == parts["three"].keys.shape[0] == 3
    assert isinstance(CrossCache(KVCache()), LayerCache)


def test_beams_choose_rows_of_every_part(known, page):
    model, tokens = made(hybrid(page)), texts(6)
    cache = model.make_cache()
    model(tokens, cache)
    for one in cache:
        one.select(mx.array([1, 1, 0]))
    found = model(tokens[:, :1][mx.array([1, 0, 0])], cache)
    for row, (before, last) in enumerate(((1, 1), (1, 0), (0, 0))):
        text = mx.concatenate([tokens[before : before + 1], tokens[last : last + 1, :1]], axis=1)
        same(found[row : row + 1], model(text)[:, -1:], f"row {row}")


# Under mlx-lm's caches


def served(recipe, model):
    architecture = SimpleNamespace(name="made", task="generate", causality="causal")
    return integration.served(Loaded(model, None, architecture, recipe, {}, None))


@pytest.mark.parametrize("step", [3, 64])
def test_mlx_lms_caches_compose_too(known, page, step):
    from mlx_lm.generate import BatchGenerator
    from mlx_lm.models.cache import ArraysCache, CacheList

    recipe = hybrid(page)
    plain, model = made(recipe), served(recipe, made(recipe))
    first, second = model.make_cache()[:2]
    assert isinstance(first, CacheList) and [type(c).__name__ for c in first.caches] == [
        "KVCache",
        "ArraysCache",
    ]
    assert isinstance(second, CacheList) and isinstance(second.caches[1], ArraysCache)
    prompts = [texts(17, 1)[0].tolist(), texts(5, 1)[0].tolist(), texts(11, 1)[0].tolist()]
    generator = BatchGenerator(model, max_tokens=5, prefill_step_size=step)
    found = {uid: [] for uid in generator.insert(prompts)}
    while responses := generator.next_generated():
        for response in responses:
            found[response.uid].append(response.token)
    generator.close()
    for prompt, new in zip(prompts, found.values(), strict=True):
        logits = plain(mx.array([prompt + new]))[0, len(prompt) - 1 : -1]
        for row, token in zip(logits, new, strict=True):
            assert (row.max() - row[token]).item() <= 1e-3 * (row.max() - row.min()).item()


def test_a_cache_says_its_counterpart_itself(page):
    assert type(integration.counterpart(page.Decayed(2))).__name__ == "ArraysCache"

    class Inherits(KVCache):
        pass

    for cache in (Inherits(), LayerCache(dict(one=KVCache(), two=Inherits()))):
        with pytest.raises(PluginError, match="no counterpart of the cache Inherits, which declares none"):
            integration.counterpart(cache)


def test_positions_are_not_lost_with_caches_that_hold_none(known, page):
    positions = Embedding(VOCAB, DIM, positions=LearnedPositions(32))
    recipe = decoder(Layer(page.Fading(), MLP(8), NORM, NORM), embedding=positions)
    model = served(recipe, made(recipe))
    with pytest.raises(PromptError, match="caches of states hold no position"):
        model(texts(3), model.make_cache())


def test_mlx_lm_gives_vectors_too(known, page):
    from mlx_lm.generate import generate_step

    recipe = hybrid(page)
    plain, model = made(recipe), served(recipe, made(recipe))
    prompt = texts(9, 1)
    vectors = plain.embedding.vectors(prompt)[0]
    new = [token for token, _ in generate_step(prompt[0], model, max_tokens=4, input_embeddings=vectors)]
    expected = [token for token, _ in generate_step(prompt[0], model, max_tokens=4)]
    assert new == expected and len(new) == 4
    other = [t for t, _ in generate_step(prompt[0], model, max_tokens=4, input_embeddings=vectors[::-1])]
    assert other != new


# What is refused, by name


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
        assemble(recipe)
    assert assemble(recipe.change(causality="full"))  # where nothing is cached
    with pytest.raises(
        RecipeError, match="feedforward: feedforward/channel-mix has a cache, which layer/cross"
    ):
        CrossLayer(Attention(4), page.ChannelMix(8), NORM, NORM, cross=CrossAttention(4), cross_norm=NORM)


def test_a_cache_deep_in_a_part_is_named(plain, page):
    inner = MoE(Router(experts=2, top_k=1), Experts(count=2, hidden=8), shared=page.ChannelMix(8))
    with pytest.raises(RecipeError, match=r"mixer and feedforward\.shared each have a cache"):
        assemble(decoder(Layer(Attention(4), inner, NORM, NORM)))
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


# What a layer needs, as its spec says


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
            self.inside = build(Attention(4, window=spec.window), dim)

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
    model.layers[0].__class__ = Counting
    cache = model.make_cache()
    found = [model(tokens[:, :4], cache), model(tokens[:, 4:], cache)]
    same(mx.concatenate(found, axis=1), model(tokens), "logits")
    assert cache[0].steps == 2 and cache[0].length == 6


def test_a_layer_without_any_has_a_cache_that_holds_nothing(known):
    class Through(nn.Module):
        def __init__(self, spec, *, dim, index=0, **parts):
            super().__init__()

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
    assert [len(one.state) for one in cache] == [0, 2, 0]


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
        assemble(decoder(Named(Attention(4))))
