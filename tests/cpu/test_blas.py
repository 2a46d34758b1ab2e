"""Which BLAS is loaded, when, and what `zoo doctor` says of it."""

import json
import os
import subprocess
import sys

import pytest

from zoo import machine, runtime
from zoo.cpu import blas


def blas_and_advice(code, **environment):
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{code}\nimport json\nprint(json.dumps([runtime.blas(), runtime.speed_advice()]))",
        ],
        capture_output=True,
        text=True,
        check=True,
        env={name: value for name, value in os.environ.items() if name not in ("ZOO_BLAS", "ZOO_CPU")}
        | environment,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["none", "unknown"])
def test_a_blas_may_be_declined(name):
    library, advice = blas_and_advice("import zoo\nfrom zoo import runtime", ZOO_BLAS=name)
    if sys.platform == "linux":
        assert library == f"MLX's own (ZOO_BLAS={name})"
        assert runtime.on_gpu() or [line for line in advice if "unset ZOO_BLAS" in line]


def test_a_blas_is_chosen_by_its_name(monkeypatch):
    monkeypatch.setattr(blas, "_blas", blas.blas())
    monkeypatch.setattr(blas, "LOADERS", {"MKL": lambda: False, "OpenBLAS": lambda: True})
    monkeypatch.delitem(sys.modules, "mlx.core")
    assert blas.preload_blas({"ZOO_BLAS": "openblas"}) == "OpenBLAS"
    assert blas.preload_blas({"ZOO_BLAS": "MKL"}) == "MLX's own (ZOO_BLAS=MKL, which is not installed)"
    assert blas.preload_blas({"ZOO_BLAS": ""}) == blas.preload_blas({}) == "OpenBLAS"


def test_a_machine_without_a_fast_blas_is_told_to_install_one(monkeypatch):
    monkeypatch.setattr(blas, "_blas", "MLX's own")
    monkeypatch.setattr(runtime.device, "on_gpu", lambda: False)
    monkeypatch.setattr(sys, "platform", "linux")
    [advice] = runtime.speed_advice()
    assert "pip install" in advice and "scipy-openblas32" in advice


def test_intels_processors_have_mkl_and_others_openblas(tmp_path):
    cpuinfo = tmp_path / "cpuinfo"
    assert blas.by_processor(str(cpuinfo)) == ["OpenBLAS", "MKL"]
    for vendor, first in (("GenuineIntel", "MKL"), ("AuthenticAMD", "OpenBLAS")):
        cpuinfo.write_text(f"processor\t: 0\nvendor_id\t: {vendor}\n")
        names = blas.by_processor(str(cpuinfo))
        assert names[0] == first and set(names) == set(blas.LOADERS)


def test_openblas_replaces_the_blas_of_mlx():
    """The names that MLX calls have the addresses of OpenBLAS's functions, and its products are right."""
    if sys.platform != "linux":
        return
    code = """
import zoo, ctypes
from importlib.util import find_spec
from pathlib import Path
from zoo import runtime
folder = Path(find_spec("scipy_openblas32").origin).parent / "lib"
library = ctypes.CDLL(str(folder / "libscipy_openblas.so"))
address = lambda function: ctypes.cast(function, ctypes.c_void_p).value
assert address(ctypes.CDLL(None).cblas_dgemm) == address(library.scipy_cblas_dgemm)
import mlx.core as mx
matrix = mx.arange(12, dtype=mx.float32).reshape(3, 4)
assert (matrix @ matrix.T).tolist() == [[14, 38, 62], [38, 126, 214], [62, 214, 366]]
"""
    library, _ = blas_and_advice(code, ZOO_BLAS="OpenBLAS")
    assert library == "OpenBLAS"


def test_mlx_before_zoo_is_too_late_and_said():
    library, advice = blas_and_advice("import mlx.core\nimport zoo\nfrom zoo import runtime")
    if sys.platform == "linux":
        assert "too late" in library
        assert runtime.on_gpu() or "import zoo before mlx" in advice[0]


@pytest.mark.parametrize("given", [{}, {"MKL_NUM_THREADS": "3"}])
@pytest.mark.parametrize(("ranks", "threads"), [(1, None), (4, "2"), (16, "1")])
def test_ranks_on_one_machine_share_its_processors(monkeypatch, given, ranks, threads):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(8), raising=False)
    environment = given | {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": str(ranks)}
    assert machine.processors(environment) == max(1, 8 // ranks)
    blas.limit_threads(environment)
    assert environment.get("OMP_NUM_THREADS") == (None if given else threads)
