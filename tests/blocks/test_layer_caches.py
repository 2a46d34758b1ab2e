"""The cache of a layer with several parts: all that a cache owes, and mlx-lm's counterparts."""

from types import SimpleNamespace

import mlx.core as mx
import pytest

from tests.helpers.page_layers import DIM, NORM, VOCAB, decoder, hybrid, made, texts
from zoo.cache import (
    CachePolicy,
    CrossCache,
    KVCache,
    LayerCache,
    StateCache,
    WindowCache,
    flatten_caches,
    merged_caches,
)
from zoo.errors import PluginError, PromptError
from zoo.loading import Loaded
from zoo.recipe import (
    MLP,
    Embedding,
    Layer,
    LearnedPositions,
)
from zoo.testing import same
from zoo_mlx_lm import tools as integration


def test_a_layers_cache_is_its_parts_together():
    parts = dict(one=KVCache(), two=StateCache(1), three=WindowCache(2))
    cache = LayerCache(parts)
    assert list(cache) == list(parts.values()) and cache["two"] is parts["two"]
    assert cache.length == 0 and cache.offset == 0 and cache.padding is None and cache.state == []
    cache.padding = mx.array([0, 2])
    assert all(part.padding is cache.padding for part in parts.values())
    keys = mx.random.normal((2, 1, 4, 8))
    for name in ("one", "three"):
        parts[name].update_and_fetch(keys, keys)
    parts["two"][0] = mx.array([[1.0], [2.0]])
    parts["two"].advance(4)
    assert cache.length == 4 and cache.offset.tolist() == [4, 2] and len(cache.state) == 5
    assert cache.start(1) == 0 and parts["three"].start(1) == 3
    cache.select(mx.array([1, 1, 0]))
    assert cache.offset.tolist() == [2, 2, 4] and parts["two"][0].tolist() == [[2.0], [2.0], [1.0]]
    assert parts["one"].rows == parts["three"].rows == 3
    assert isinstance(CrossCache(KVCache()), LayerCache)


def test_beams_choose_rows_of_every_part(known, page):
    model, tokens = made(hybrid(page)), texts(6)
    cache = model.make_cache()
    model(tokens, cache)
    for layer in cache:
        layer.select(mx.array([1, 1, 0]))
    found = model(tokens[:, :1][mx.array([1, 0, 0])], cache)
    for row, (before, last) in enumerate(((1, 1), (1, 0), (0, 0))):
        text = mx.concatenate([tokens[before : before + 1], tokens[last : last + 1, :1]], axis=1)
        same(found[row : row + 1], model(text)[:, -1:], f"row {row}")


@pytest.mark.parametrize("policy", [CachePolicy(), CachePolicy(max_size=5, keep=2)], ids=["plain", "bounded"])
def test_texts_of_layers_of_several_parts_share_a_batch(known, page, policy):
    model, tokens = made(hybrid(page, window=8)), texts(16, 3)
    alone = [model.make_cache(policy) for _ in range(3)]
    assert model.refused(alone[0], policy) is None
    for row, length in enumerate((9, 1, 4)):
        model(tokens[row : row + 1, :length], alone[row])
    batch = merged_caches(alone)
    for step in range(4):
        new = tokens[:, 9 + step : 10 + step]
        found = model(new, batch)
        for row in range(3):
            same(found[row : row + 1], model(new[row : row + 1], alone[row]), f"row {row}, step {step}")
    again = model.make_cache(policy)
    for cache, kept in zip(flatten_caches(again), flatten_caches(batch), strict=True):
        cache.restore(kept.snapshot(2))
    same(model(tokens[2:, :3], again), model(tokens[2:, :3], alone[2]), "row 2 taken out")


def test_bits_that_a_part_cannot_take_are_refused_with_its_path(known, page):
    model, policy = made(hybrid(page)), CachePolicy(key_bits=8)
    reason = model.refused(model.make_cache(policy), policy)
    assert reason and reason.startswith("`kv_bits`: keys of 4 numbers") and "(layers.0.attention)" in reason


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
