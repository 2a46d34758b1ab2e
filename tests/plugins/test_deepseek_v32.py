"""The indexer of DeepSeek-V3.2: which tokens it chooses, and what it keeps of them."""

import mlx.core as mx
import numpy as np
import pytest

from zoo.assemble import assemble
from zoo.config import Config
from zoo.errors import ConfigError
from zoo.host.registry import default_registry
from zoo_deepseek_v32 import deepseek_v32, glm_moe_dsa

TINY = default_registry().architecture("deepseek-v3.2").preset("tiny").config


def model(**changes):
    mx.random.seed(3)
    return assemble(deepseek_v32(Config(TINY | changes)), default_registry())


def test_the_chosen_tokens_are_those_of_the_largest_sums():
    attention = model().layers[0].mixer
    indexer, spec = attention.indexer, attention.spec.indexer
    x, source = mx.random.normal((2, 20, 64)), mx.random.normal((2, 20, spec.query_rank))
    keys = indexer.keys(x, 0)
    visible = np.tri(20, dtype=bool)
    found = np.array(indexer(x, source, 0, keys, mx.array(visible)))[:, 0]
    queries = np.array(indexer.rope(indexer.query(source).reshape(2, 20, spec.heads, -1).swapaxes(1, 2), 0))
    products = np.maximum(np.einsum("bjti,bsi->bjts", queries, np.array(keys)[:, 0]), 0)
    scores = np.einsum("bjts,btj->bts", products, np.array(indexer.weights(x)))
    scores = np.where(visible, scores, -np.inf)
    for row in range(2):
        for token in range(spec.top_k, 20):
            best = np.argsort(-scores[row, token])[: spec.top_k]
            assert set(found[row, token]) == set(best)


def test_tokens_taken_out_of_the_cache_give_what_masked_ones_give():
    part = model(index_topk=2)
    tokens = mx.array(np.random.default_rng(0).integers(0, 256, (2, 24)))
    whole, cache = part(tokens), part.make_cache()
    part(tokens[:, :20], cache)
    assert part.layers[0].mixer.gathers(1, 21)
    for index in range(20, 24):
        step = part(tokens[:, index : index + 1], cache)
        assert mx.abs(step[:, 0] - whole[:, index]).max().item() < 1e-4


def test_the_indexers_keys_are_cached_and_counted():
    recipe = deepseek_v32(Config(TINY))
    mixer = recipe.layers[0].mixer
    assert mixer.kv_cache_size(64) == mixer.kv_rank + mixer.rope_dim + mixer.indexer.head_dim
    without = mixer.change(indexer=None)
    few = without.own_flops(64, mixer.indexer.top_k)
    assert mixer.own_flops(64, 4096) == few  # of 4,096 tokens only the chosen ones are read


def test_layers_that_use_anothers_choice_are_refused_by_name():
    with pytest.raises(ConfigError, match="index_topk_freq"):
        glm_moe_dsa(Config(TINY | dict(index_topk_freq=4)))
    with pytest.raises(ConfigError, match="indexer_types"):
        glm_moe_dsa(Config(TINY | dict(indexer_types=["full", "shared", "full"])))
