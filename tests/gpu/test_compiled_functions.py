"""Functions that `mx.compile` makes one kernel of, which the other tests of this folder run uncompiled."""

import shutil

import mlx.core as mx
import pytest

from zoo.testing import same, subject
from zoo.testing.subjects import answer


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gemma2", "llama"])
def test_a_compiled_function_gives_what_its_operations_do(name):
    if shutil.which("c++") is None:
        pytest.skip("MLX's CPU needs a C++ compiler")
    made = subject(name)
    expected = answer(made)
    mx.eval(expected)
    mx.enable_compile()
    try:
        same(answer(made), expected, "logits")
    finally:
        mx.disable_compile()
