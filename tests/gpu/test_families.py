"""Every architecture in the dtypes that a GPU runs: whole texts, the compiled step, rows of different lengths, caches."""

import mlx.core as mx
import pytest

from tests.helpers.architectures import each_architecture
from zoo.checkpoint.parameters import quantize
from zoo.compiled_step import compiled_step
from zoo.testing import cache_checks, model_checks, subject
from zoo.testing.subjects import (
    QUANTIZATION,
    answer,
    can_be_quantized,
    decodes,
    quantizes,
    same_on_average,
    writes,
)
from zoo_deepseek.spec import Indexer

PACKED = [False, pytest.param(True, marks=pytest.mark.slow)]


@pytest.mark.parametrize("packed", PACKED, ids=["floats", "packed"])
@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("name", each_architecture())
def test_an_architecture_runs_in_16_bits(name, dtype, packed):
    made = subject(name)
    made.model.set_dtype(dtype)
    if packed and can_be_quantized(made):
        quantize(made.model, QUANTIZATION, quantizes(made))
    found = answer(made)
    assert found.dtype == dtype
    if writes(made) and compiled_step(made.model) is not None:
        cache_checks.compiled_step_equals_the_model(made)
    if decodes(made):
        if "left" in made.model.padding:
            model_checks.padded_row_equals_the_row_alone(made)
        caches = made.model.make_cache()
        assert made.model(made.tokens[:, :5], caches).dtype == dtype
        held = {array.dtype for cache in caches for array in cache.state if array.dtype != mx.bool_}
        states = {mx.float32} if any(spec.recurrent for _, spec in made.recipe.walk()) else set()
        assert dtype in held and held <= {dtype, *states}, held
    made.model.set_dtype(mx.float32)
    # Which few of the tokens an indexer chooses changes more than which experts a router does.
    chooses = any(isinstance(spec, Indexer) for _, spec in made.recipe.walk())
    same_on_average(found, answer(made), "logits", tolerance=0.05 if chooses else 0.02)
