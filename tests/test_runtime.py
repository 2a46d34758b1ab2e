"""The device: which BLAS is loaded, when, and what `zoo doctor` says of it."""

import copy
import json
import os
import subprocess
import sys

import pytest

from zoo import machine, runtime
from zoo.errors import ZooError
from zoo.runtime import device, operations


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
        env={name: value for name, value in os.environ.items() if name != "ZOO_BLAS"} | environment,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["none", "unknown"])
def test_a_blas_may_be_declined(name):
    blas, advice = blas_and_advice("import zoo\nfrom zoo import runtime", ZOO_BLAS=name)
    if sys.platform == "linux":
        assert blas == f"MLX's own (ZOO_BLAS={name})"
        assert runtime.on_gpu() or [line for line in advice if "unset ZOO_BLAS" in line]


def test_a_blas_is_chosen_by_its_name(monkeypatch):
    monkeypatch.setattr(machine, "_blas", machine.blas())
    monkeypatch.setattr(machine, "LOADERS", {"MKL": lambda: False, "OpenBLAS": lambda: True})
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delitem(sys.modules, "mlx.core")
    assert machine.preload_blas({"ZOO_BLAS": "openblas"}) == "OpenBLAS"
    assert machine.preload_blas({"ZOO_BLAS": "MKL"}) == "MLX's own (ZOO_BLAS=MKL, which is not installed)"
    assert machine.preload_blas({"ZOO_BLAS": ""}) == machine.preload_blas({}) == "OpenBLAS"


def test_a_machine_without_a_fast_blas_is_told_to_install_one(monkeypatch):
    monkeypatch.setattr(runtime.device, "blas", lambda: "MLX's own")
    monkeypatch.setattr(runtime.device, "on_gpu", lambda: False)
    monkeypatch.setattr(sys, "platform", "linux")
    [advice] = runtime.speed_advice()
    assert "pip install" in advice and "scipy-openblas32" in advice


def test_intels_processors_have_mkl_and_others_openblas(tmp_path):
    cpuinfo = tmp_path / "cpuinfo"
    assert machine.by_processor(str(cpuinfo)) == ["OpenBLAS", "MKL"]
    for vendor, first in (("GenuineIntel", "MKL"), ("AuthenticAMD", "OpenBLAS")):
        cpuinfo.write_text(f"processor\t: 0\nvendor_id\t: {vendor}\n")
        names = machine.by_processor(str(cpuinfo))
        assert names[0] == first and set(names) == set(machine.LOADERS)


def test_openblas_replaces_the_blas_of_mlx():
    """The names that MLX calls have the addresses of OpenBLAS's functions, and its products are right."""
    if sys.platform != "linux":
        return
    code = """
import zoo, ctypes
from importlib.util import find_spec
from pathlib import Path
from zoo import machine, runtime
folder = Path(find_spec("scipy_openblas32").origin).parent / "lib"
library = ctypes.CDLL(str(folder / "libscipy_openblas.so"))
address = lambda function: ctypes.cast(function, ctypes.c_void_p).value
assert address(ctypes.CDLL(None).cblas_dgemm) == address(library.scipy_cblas_dgemm)
import mlx.core as mx
matrix = mx.arange(12, dtype=mx.float32).reshape(3, 4)
assert (matrix @ matrix.T).tolist() == [[14, 38, 62], [38, 126, 214], [62, 214, 366]]
"""
    blas, _ = blas_and_advice(code, ZOO_BLAS="OpenBLAS")
    assert blas == "OpenBLAS"


def test_mlx_before_zoo_is_too_late_and_said():
    blas, advice = blas_and_advice("import mlx.core\nimport zoo\nfrom zoo import runtime")
    if sys.platform == "linux":
        assert "too late" in blas
        assert runtime.on_gpu() or "import zoo before mlx" in advice[0]


@pytest.mark.parametrize("given", [{}, {"MKL_NUM_THREADS": "3"}])
@pytest.mark.parametrize(("ranks", "threads"), [(1, None), (4, "2"), (16, "1")])
def test_ranks_on_one_machine_share_its_processors(monkeypatch, given, ranks, threads):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(8), raising=False)
    environment = given | {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": str(ranks)}
    assert machine.processors(environment) == max(1, 8 // ranks)
    machine.limit_threads(environment)
    assert environment.get("OMP_NUM_THREADS") == (None if given else threads)


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


def test_arrays_are_shared_among_streams_by_their_bytes(monkeypatch):
    monkeypatch.setattr(device, "side_streams", lambda: ("first", "second"))
    found = runtime.assign_streams({"small": 3, "large": 10, "middle": 4, "other": 4})
    assert found == {"large": "first", "middle": "second", "other": "second", "small": "second"}
    assert list(found) == ["large", "middle", "other", "small"]


@pytest.mark.parametrize("outputs", [96, 5])
@pytest.mark.parametrize("mode", ["affine", "mxfp4"])
def test_a_divided_product_is_the_whole_one(outputs, mode, monkeypatch):
    import mlx.core as mx

    group, bits = (64, 4) if mode == "affine" else (32, 4)
    x = mx.random.normal((2, 3, 128), key=mx.random.key(0))
    matrix = mx.random.normal((outputs, 128), key=mx.random.key(1))
    weight, scales, *biases = mx.quantize(matrix, group, bits, mode=mode)
    parts = (weight, scales, biases[0] if biases else None)
    how = dict(group_size=group, bits=bits, mode=mode)
    expected = mx.quantized_matmul(x, *parts, transpose=True, **how)
    monkeypatch.setattr(operations, "LEAST_DIVIDED", 0)
    multiply = runtime.quantized_matmul(*parts, how)
    assert mx.allclose(multiply(x), expected, rtol=1e-5, atol=1e-5).item()
    gradient = mx.grad(lambda x: multiply(x).sum())(x)
    whole = mx.grad(lambda x: mx.quantized_matmul(x, *parts, transpose=True, **how).sum())(x)
    assert mx.allclose(gradient, whole, rtol=1e-5, atol=1e-5).item()
    assert mx.allclose(mx.compile(multiply)(x), expected, rtol=1e-5, atol=1e-5).item()


@pytest.mark.parametrize(("cores", "ring", "batch"), [(1, False, True), (2, False, False), (1, True, False)])
def test_threads_take_turns_on_one_core_but_for_those_of_the_ring(tmp_path, cores, ring, batch):
    """Their policy is SCHED_BATCH; threads that had another policy than the default keep theirs."""
    if sys.platform != "linux" or runtime.on_gpu():
        return
    code = f"""
import os, threading
os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:{cores}])
os.sched_getaffinity = lambda process: set(range({cores}))
import zoo
from zoo import runtime
import mlx.core as mx
done = threading.Event()
def idle():
    os.sched_setscheduler(threading.get_native_id(), os.SCHED_IDLE, os.sched_param(0))
    ready.release()
    done.wait()
ready = threading.Semaphore(0)
other = threading.Thread(target=idle)
other.start()
ready.acquire()
runtime.set_up_device()
mx.eval(mx.ones(4) + 1)
policies = {{int(t): os.sched_getscheduler(int(t)) for t in os.listdir("/proc/self/task")}}
assert policies.pop(other.native_id) == os.SCHED_IDLE
done.set()
assert set(policies.values()) == {{os.SCHED_BATCH if {batch} else os.SCHED_OTHER}}, policies
"""
    hosts = tmp_path / "hosts.json"
    hosts.write_text(json.dumps([["127.0.0.1:5000"], ["127.0.0.1:5001"]]))
    launched = {"MLX_RANK": "0", "MLX_HOSTFILE": str(hosts)} if ring else {}
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | launched)
