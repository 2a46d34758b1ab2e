"""Every architecture in the dtypes that a GPU runs: the whole text, the compiled step, rows of different lengths."""

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

from tests.helpers.architectures import each_architecture
from zoo import runtime
from zoo.checkpoint.parameters import quantize
from zoo.compiled_step import compiled_step
from zoo.testing import cache_checks, model_checks, same, subject
from zoo.testing.subjects import QUANTIZATION, answer, can_be_quantized, decodes, quantizes, same_on_average, translates, writes

DTYPES = (mx.bfloat16, mx.float16)


def logits(made):
    found = answer(made)
    mx.eval(found)
    return found


@pytest.mark.parametrize("packed", [False, True], ids=["floats", "packed"])
@pytest.mark.parametrize("dtype", DTYPES, ids=["bfloat16", "float16"])
@pytest.mark.parametrize("name", each_architecture())
def test_an_architecture_runs(name, dtype, packed):
    made = subject(name)
    if packed and not can_be_quantized(made):
        return
    if packed:
        quantize(made.model, QUANTIZATION, quantizes(made))
    expected = logits(made)
    made.model.set_dtype(dtype)
    found = logits(made)
    print("FWD", name, found.dtype)
    same_on_average(found, expected, "logits")
    if writes(made):
        caches = made.model.make_cache()
        if compiled_step(made.model) is not None:
            try: cache_checks.compiled_step_equals_the_model(made)
            except AssertionError as e: print("STEP", name, dtype, e)
    if decodes(made) and "left" in made.model.padding:
        try: model_checks.padded_row_equals_the_row_alone(made)
        except AssertionError as e: print("PAD", name, dtype, e)
    if decodes(made):
        cache = made.model.make_cache()
        mx.eval(made.model(made.tokens[:, :5], cache))
        print("CACHE", name, dtype, {str(a.dtype) for _, a in tree_flatten([vars(c) if not isinstance(c, (list,)) else c for c in cache]) if isinstance(a, mx.array)})
