"""Every registered architecture holds the conformance suite, and the suite notices what breaks it."""

import mlx.core as mx
import pytest

from zoo.registry import registry
from zoo.testing import CHECKS, check_architecture, run_checks, subject


@pytest.mark.parametrize("name", registry().architectures)
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


def test_a_failed_check_is_reported_with_what_differed():
    broken = next(r for r in run_checks("llama") if r.name == "half_precision_runs")
    assert broken.passed and broken.reason
