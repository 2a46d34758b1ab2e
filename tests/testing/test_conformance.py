"""Every registered architecture holds the conformance suite, and the suite notices what breaks it."""

from dataclasses import replace

import mlx.core as mx
import pytest

from zoo.assemble import assemble
from zoo.checkpoint.open import make_recipe
from zoo.host.registry import default_registry
from zoo.testing import CHECKS, check_architecture, outcome, randomise, subject


@pytest.mark.parametrize("name", default_registry().architectures)
def test_conforms(name):
    results = check_architecture(name)
    assert "parameters_equal_the_recipes" in {result.name for result in results}


def failing(made, name):
    check = next(check for check in CHECKS if check.name == name)
    with pytest.raises(AssertionError):
        check.run(made)


@pytest.fixture
def llama():
    return subject("llama")


def test_notices_a_cache_whose_position_is_wrong(llama):
    make = llama.model.make_cache

    def wrong(policy=None):
        caches = make(policy)
        for cache in caches:
            type(cache).offset = property(lambda self: max(self.length - 1, 0))
        return caches

    original = type(make()[0]).offset if "offset" in vars(type(make()[0])) else None
    llama.model.make_cache = wrong
    try:
        failing(llama, "cached_decode_equals_full_forward")
    finally:
        kind = type(make()[0])
        del kind.offset
        if original is not None:
            kind.offset = original


def test_notices_a_model_that_sees_the_future(llama):
    llama.model.mask = lambda *arguments: None
    failing(llama, "later_token_changes_no_earlier_logit")


def test_notices_a_mask_that_forgets_padding(llama):
    plain = type(llama.model).mask

    def forgetful(queries, window, cache, padding, prefix):
        if cache is not None:
            cache.padding = None
        return plain(llama.model, queries, window, cache, None, prefix)

    llama.model.mask = forgetful
    failing(llama, "padded_row_equals_the_row_alone")


def test_notices_parameters_that_the_recipe_does_not_count(llama):
    llama.model.extra = mx.zeros((3,))
    failing(llama, "parameters_equal_the_recipes")


def test_a_failed_check_is_reported_with_what_differed(llama):
    llama.model.extra = mx.zeros((3,))
    check = next(check for check in CHECKS if check.name == "parameters_equal_the_recipes")
    result = outcome(check, llama)
    assert not result.passed and result.reason == check.reason
    assert result.message == "the model holds 1,049,731 parameters, the recipe counts 1,049,728"
    del llama.model.extra
    assert outcome(check, llama).passed


SCALINGS = [
    dict(rope_type="linear", factor=4.0),
    dict(rope_type="dynamic", factor=4.0),  # within its context, beyond which the angles depend on the length
    dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0),
    dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=8),
]


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda scaling: scaling["rope_type"])
@pytest.mark.parametrize("name", ["cached_decode_equals_full_forward", "chunked_prefill_equals_whole"])
def test_scaled_rotary_positions_hold_with_a_cache(llama, scaling, name):
    recipe = make_recipe(
        llama.architecture, dict(llama.numbers) | {"rope_scaling": scaling}, default_registry()
    )
    assert recipe.layers[0].mixer.rope.scaling is not None
    model = assemble(recipe, default_registry())
    randomise(model)
    next(check for check in CHECKS if check.name == name).run(replace(llama, recipe=recipe, model=model))
