"""The bytes that caches take are those that the facts tell, and a bounded cache takes no more for a longer text."""

import mlx.core as mx
import pytest

from zoo.assemble import assemble
from zoo.cache import CachePolicy, KVCache, WindowCache, flatten_caches
from zoo.checkpoint.open import make_recipe
from zoo.describe import facts_of
from zoo.describe.facts.memory import policy_bytes
from zoo.errors import PromptError
from zoo.host.registry import default_registry
from zoo.testing.subjects import numbers_of

REGISTRY = default_registry()
CHANGES = {
    "llama": dict(head_dim=32),
    "deepseek-v3": dict(qk_rope_head_dim=32),
    "gpt-oss": dict(head_dim=32, sliding_window=300),
}
POLICIES = {
    "plain": {},
    "k8v8": dict(kv_bits=8),
    "k8v4": dict(key_bits=8, value_bits=4),
    "k4v4, start": dict(kv_bits=4, kv_start=8),
    "bounded": dict(max_kv_size=256, keep=4),
    "bounded, k8": dict(max_kv_size=256, keep=4, key_bits=8),
}


def recipe_of(name):
    architecture = REGISTRY.architecture(name)
    return make_recipe(architecture, {**numbers_of(architecture), **CHANGES.get(name, {})}, REGISTRY)


def filled(recipe, policy, tokens):
    """A model's caches with random keys and values of so many tokens in 16 bits, read in two pieces and a token."""
    caches = assemble(recipe, REGISTRY).make_cache(policy)
    for layer, cache in zip(recipe.layers, flatten_caches(caches), strict=True):
        widths, numbers = layer.mixer.kv_widths(recipe.dim), layer.mixer.kv_cache_size(recipe.dim)
        heads = numbers // sum(widths)
        for count in (tokens // 2, tokens - tokens // 2 - 1, 1):
            cache.update_and_fetch(*(mx.ones((1, heads, count, width), dtype=mx.float16) for width in widths))
        mx.eval(cache.state)
    return caches


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ["llama", "deepseek-v3", "gpt-oss"])
def test_caches_take_the_bytes_that_are_told(name, policy):
    recipe = recipe_of(name)
    settings = POLICIES[policy]
    for tokens in (512, 2048):
        asked = CachePolicy.of(**settings, reserve=tokens)
        taken = sum(cache.nbytes for cache in flatten_caches(filled(recipe, asked, tokens)))
        sheet = facts_of(recipe, context=tokens, policy=CachePolicy.of(**settings))
        told = sheet["cache.context" if asked.plain else "cache.policy"].value
        assert abs(taken - told) <= 0.05 * told, (taken, told)


def test_a_cache_that_nobody_foresaw_doubles():
    cache, sizes = KVCache(), []
    for _ in range(1030):
        cache.update_and_fetch(*mx.zeros((2, 1, 1, 1, 8)))
        sizes.append(cache.keys.buffer.shape[2])
    assert sorted(set(sizes)) == [256, 512, 1024, 2048]


@pytest.mark.parametrize(
    "cache",
    [
        KVCache(CachePolicy(max_size=40, keep=4)),
        KVCache(CachePolicy(max_size=40, keep=4, key_bits=8, value_bits=4)),
        WindowCache(40),
        WindowCache(100, CachePolicy(max_size=40)),
    ],
    ids=lambda cache: cache.kind,
)
def test_a_bounded_cache_takes_the_same_for_any_text(cache):
    sizes = set()
    for count in (30, 500, *[1] * 300, 70, *[1] * 60):
        cache.update_and_fetch(*mx.ones((2, 1, 1, count, 64)))
        mx.eval(cache.state)
        sizes.add(cache.nbytes if cache.length > 100 else 0)
    assert len(sizes) == 2  # one of a short text


def test_what_cannot_be_is_refused_by_the_facts_too():
    with pytest.raises(PromptError, match="`kv_bits`: this model keeps no keys"):
        facts_of(recipe_of("mamba"), policy=CachePolicy(key_bits=8))
    with pytest.raises(PromptError, match="`kv_bits`: keys of 24 numbers"):
        facts_of(recipe_of("qwen3-moe"), policy=CachePolicy(key_bits=8))
    assert policy_bytes(recipe_of("mamba"), 9, CachePolicy()) == 4 * recipe_of("mamba").state_size(48)
    for given, name in (
        (dict(keep=3), "keep"),
        (dict(kv_start=3), "kv_start"),
        (dict(kv_group_size=32), "kv_group"),
    ):
        with pytest.raises(PromptError, match=f"`{name}"):
            CachePolicy.of(**given)
