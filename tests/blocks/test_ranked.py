"""Models whose parts several ranks compute. The ranks are threads."""

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from tests.recipe.test_tensor_parallel import model
from zoo.assemble import assemble
from zoo.blocks.ranked import connect_ranks
from zoo.checkpoint.division import divided_parameters
from zoo.compiled_step import compiled_step
from zoo.host.registry import default_registry
from zoo.recipe import MLP, Attention, JointRMSNorm, Share, divided
from zoo.runtime import ranks
from zoo.testing.subjects import random_texts, randomise, same
from zoo.testing.threads import run_ranks
from zoo_translation.recipes import RelativeBias

THREE = model(Attention(heads=9, kv_heads=3, head_dim=8, bias=True, output_bias=True), dim=72)
REPEATED = Attention(
    heads=4, kv_heads=2, head_dim=12, query_norm=JointRMSNorm(heads=4), key_norm=JointRMSNorm(heads=2)
)
RECIPES = {
    "three groups": (THREE, 3),
    "biases, added once": (THREE.change_layers(feedforward=MLP(hidden=30)), 3),
    "one mean of all heads": (model(REPEATED), 2),
    "one mean of all heads, of which some are repeated": (model(REPEATED), 4),
    "a bias of scores": (model(Attention(6, 2, head_dim=8), relative=RelativeBias(6)), 2),
    "a tied head": (THREE.change(head={"tied": True}), 3),
}


def trimmed(cache):
    """The cache without its last token."""
    for one in cache:
        one.trim(1)
    return cache


@pytest.mark.parametrize("recipe, count", RECIPES.values(), ids=RECIPES)
def test_ranks_give_the_logits_of_one(recipe, count):
    whole, texts = assemble(recipe, default_registry()), random_texts(recipe)
    randomise(whole)
    parameters, expected = dict(tree_flatten(whole.parameters())), whole(texts)
    mx.eval(expected)

    def run():
        division = divided(recipe, recipe.dim, Share(ranks.rank(), count))
        part = assemble(division.spec, default_registry())
        part.load_weights(list(divided_parameters(parameters, division, ranks.rank()).items()))
        connect_ranks(part, division)
        same(part(texts), expected, "logits")
        cache = part.make_cache()
        part(texts[:, :-1], cache=cache)
        same(compiled_step(part)(texts[:, -1:], cache), expected[:, -1], "logits of the step")
        same(part(texts[:, -1:], cache=trimmed(cache)), expected[:, -1:], "logits of one token")
        return sum(array.size for _, array in tree_flatten(part.parameters()))

    assert max(run_ranks(count, run)) < recipe.parameters(recipe.dim)


def test_ranks_that_do_not_do_the_same_are_an_error():
    def run():
        return ranks.all_sum(mx.ones(2)) if ranks.rank() else ranks.all_gather(mx.ones(2))

    with pytest.raises(AssertionError, match="the ranks do not do the same: all_gather, all_sum"):
        run_ranks(2, run)


def test_a_rank_that_stops_early_is_an_error():
    with pytest.raises(AssertionError, match="finished"):
        run_ranks(2, lambda: ranks.rank() or ranks.all_sum(mx.ones(2)))


def test_the_error_of_a_rank_ends_those_that_wait_for_it():
    def run():
        if ranks.rank():
            raise ValueError("broken")
        ranks.all_sum(mx.ones(2))

    with pytest.raises(ValueError, match="broken"):
        run_ranks(2, run)


def test_ranks_draw_the_same_random_numbers():
    first, second = run_ranks(2, ranks.random_seed)
    assert first == second
