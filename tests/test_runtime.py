"""The device: its dtypes and its memory."""

import copy

import pytest

from zoo import runtime
from zoo.errors import ZooError
from zoo.runtime import device


def test_a_fused_function_can_be_copied_with_the_module_that_holds_it(monkeypatch):
    monkeypatch.setattr(device, "on_gpu", lambda: True)
    assert copy.deepcopy({"activation": runtime.fused(lambda x: x * 2)})["activation"] is not None


def test_dtypes():
    import mlx.core as mx

    assert runtime.compute_dtype("float16") == mx.float16
    if not runtime.on_gpu():
        assert runtime.compute_dtype() == mx.float32
    with pytest.raises(ZooError, match="int4"):
        runtime.compute_dtype("int4")


def test_memory_is_measured():
    import mlx.core as mx

    mx.clear_cache()
    mx.reset_peak_memory()
    assert runtime.total_memory() > 2**30
    before = runtime.peak_memory()
    mx.eval(mx.ones((before // 4 + 2**20,)))
    assert runtime.peak_memory() >= before + 2**22
