"""The device: which BLAS is loaded, when, and what `zoo doctor` says of it."""

import json
import subprocess
import sys

import pytest

from zoo import runtime
from zoo.errors import ZooError


def blas_and_advice(code, **environment):
    import os

    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport json\nprint(json.dumps([runtime.blas(), runtime.advice()]))"],
        capture_output=True,
        text=True,
        check=True,
        env={name: value for name, value in os.environ.items() if name != "ZOO_BLAS"} | environment,
    )
    return json.loads(done.stdout)


def test_a_blas_may_be_declined():
    blas, advice = blas_and_advice("import zoo\nfrom zoo import runtime", ZOO_BLAS="none")
    if sys.platform == "linux":
        assert blas.startswith("MLX's own") and advice


def test_mlx_before_zoo_is_too_late_and_said():
    blas, advice = blas_and_advice("import mlx.core\nimport zoo\nfrom zoo import runtime")
    if sys.platform == "linux":
        assert "too late" in blas
        assert "import zoo before mlx" in advice[0]


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
