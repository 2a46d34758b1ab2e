"""The device: backend, BLAS, dtype policy, memory. Nothing else in the zoo asks which device this is.

The product is for Metal. On Linux, MLX's CPU backend brings a reference BLAS on one thread; an optimised one
whose `cblas_sgemm` is loaded globally before `mlx.core` replaces it. Imports no mlx at module level, so that
`import zoo` can do just that.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from zoo.errors import ZooError

MOST_THREADS = 8  # beyond that, reading memory bounds them
MOST_CASTS = 4  # arrays at once: reading memory bounds more of them
MANY_NUMBERS = 2**16  # whose exp takes the CPU longer than it takes to call numpy's
MOST_JOINED = 2**30  # bytes of a model beyond which launching a product takes less than reading its matrix
COLUMNS = range(8, 48)  # vectors at once that MKL multiplies faster as columns
MATRIX_IN_CACHE = 2**21  # numbers of a matrix up to which it does not
UNPACKED_ROWS = 16  # from which on the CPU unpacks a matrix to multiply by it
LEAST_DIVIDED = 2**15  # words of packed numbers from which on a product is divided among cores
MOST_KEPT = 64 * 2**20  # bytes freed that may wait for the next text

_blas = "not looked for"


def preload_blas(environ: dict[str, str] | os._Environ[str] = os.environ) -> str:
    """Load MKL or OpenBLAS globally on Linux, before `mlx.core` is imported; gives what `blas()` will say.

    `ZOO_BLAS=none` leaves MLX's own.
    """
    global _blas
    if sys.platform != "linux":
        _blas = "Accelerate" if sys.platform == "darwin" else "MLX's own"
    elif environ.get("ZOO_BLAS") == "none":
        _blas = "MLX's own (ZOO_BLAS=none)"
    elif "mlx.core" in sys.modules:
        _blas = "MLX's own: mlx was imported before zoo, too late to load a faster one"
    else:
        _blas = _load_mkl() or _load_openblas() or "MLX's own"
    return _blas


def _load_mkl() -> str | None:
    folder = Path(sys.prefix) / "lib"
    libraries = sorted(folder.glob("libmkl_rt.so.*"))
    if not libraries:
        return None
    try:
        if (folder / "libiomp5.so").exists():
            ctypes.CDLL(str(folder / "libiomp5.so"), mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(libraries[-1]), mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return None
    return "MKL"


def _load_openblas() -> str | None:
    try:
        ctypes.CDLL("libopenblas.so.0", mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return None
    return "OpenBLAS"


def blas() -> str:
    """Which BLAS serves matrix products on the CPU."""
    return _blas


@cache
def on_gpu() -> bool:
    """Whether MLX's default device is a GPU."""
    import mlx.core as mx

    return mx.default_device().type == mx.DeviceType.gpu


def backend() -> str:
    """ "Metal", "CUDA" or "CPU"."""
    import mlx.core as mx

    if not on_gpu():
        return "CPU"
    return "Metal" if mx.metal.is_available() else "CUDA"


DTYPES = ("float32", "float16", "bfloat16")


def compute_dtype(asked: str | None = None) -> Any:
    """The dtype that floats are cast to; None keeps the checkpoint's. On the CPU float32 is fastest by far."""
    import mlx.core as mx

    if asked is None:
        return None if on_gpu() else mx.float32
    if asked not in DTYPES:
        raise ZooError(f"dtype {asked!r} is not one of {', '.join(DTYPES)}")
    return getattr(mx, asked)


def unpacked_dtype() -> Any:
    """The dtype of matrices whose packing this library lacks: half precision on a GPU, float32 where that is fastest."""
    import mlx.core as mx

    return mx.float16 if on_gpu() else mx.float32


def threads() -> int:
    """How many threads work side by side on what numpy does."""
    return min(os.cpu_count() or 1, MOST_THREADS)


def side_by_side(sizes: Mapping[str, int]) -> dict[str, Any]:
    """The stream for each of many arrays, from their bytes by name: about as many bytes a stream, the largest first."""
    streams = side_streams()
    given = [0] * len(streams)
    found = {}
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        least = given.index(min(given))
        given[least] += sizes[name]
        found[name] = streams[least]
    return found


def on(stream: Any) -> AbstractContextManager[Any]:
    """Operations within are for this stream, one of `side_streams`."""
    import mlx.core as mx

    return nullcontext() if stream is None else mx.stream(stream)


@cache
def side_streams() -> tuple[Any, ...]:
    """The streams for what is done to many arrays at once, one a core; on a GPU the usual one.

    They are made once: each has a thread that never ends.
    """
    import mlx.core as mx

    if on_gpu():
        return (None,)
    # Where streams belong to the thread that made them, these are one in each thread that uses them.
    new = getattr(mx, "new_thread_local_stream", mx.new_stream)
    return tuple(new(mx.cpu) for _ in range(min(os.cpu_count() or 1, MOST_CASTS)))


def fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as one kernel, where that is free; as it is on the CPU, which would call a C++ compiler."""
    import mlx.core as mx

    return mx.compile(function, shapeless=True) if on_gpu() else function


def has_kernels() -> bool:
    """Whether norms, rotary positions and attention are one kernel each, and not a graph of general operations."""
    return on_gpu()


def elementwise(function: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
    """An activation as one kernel where that is free; inside `eager()`, for many numbers, numpy's form of that name."""
    import mlx.core as mx

    if on_gpu():
        return fused(function)

    def either(x: Any) -> Any:
        if x.size < MANY_NUMBERS or x.dtype != mx.float32 or not evaluates(x):
            return function(x)
        from zoo import arithmetic

        form = arithmetic.ACTIVATIONS.get(name)
        return arithmetic.in_pieces(form, x) if form else function(x)

    return either


def joins(nbytes: int) -> bool:
    """Whether a decode step of a model of so many bytes gains by joining the projections of a vector in one product."""
    return nbytes <= MOST_JOINED


def unpacks(nbytes: int) -> bool:
    """Whether packed matrices are best kept as floats, too, which take so many bytes more.

    The CPU backend multiplies packed numbers several times slower than floats; what is kept has to leave half of the memory.
    """
    room = total_memory()
    return not on_gpu() and room is not None and nbytes <= room / 2


def as_columns(size: int) -> range:
    """How many vectors at once are multiplied faster as the columns of the second factor, W xᵀ in the place of x Wᵀ.

    `size` is the matrix's, in numbers. MKL packs a transposed matrix for each product, which for few vectors takes as long
    as the product.
    """
    return COLUMNS if size > MATRIX_IN_CACHE and _blas == "MKL" and not on_gpu() else range(0)


def multiplies_floats(rows: int) -> bool:
    """Whether so many rows are multiplied faster by the floats of a packed matrix, made for them, than by packed numbers."""
    return rows >= UNPACKED_ROWS and not on_gpu()


def packed_product(
    weight: Any, scales: Any, biases: Any, *, group_size: int | None, bits: int | None, mode: str
) -> Callable[[Any], Any]:
    """x -> x times the transposed matrix (O, I) of packed numbers: (…, I) -> (…, O).

    The CPU backend multiplies packed numbers on one core: the outputs are divided among the side streams there.
    """
    import mlx.core as mx

    how: dict[str, Any] = dict(transpose=True, group_size=group_size, bits=bits, mode=mode)
    streams = side_streams()
    if len(streams) == 1 or weight.ndim != 2 or weight.size < LEAST_DIVIDED:
        return lambda x: mx.quantized_matmul(x, weight, scales, biases, **how)
    step = -(-weight.shape[0] // len(streams))
    slices = [slice(first, first + step) for first in range(0, weight.shape[0], step)]
    parts = [(weight[s], scales[s], None if biases is None else biases[s]) for s in slices]

    def multiply(x: Any) -> Any:
        found = [
            mx.quantized_matmul(x, *part, **how, stream=stream)
            for part, stream in zip(parts, streams, strict=False)
        ]
        return mx.concatenate(found, axis=-1)

    return multiply


_evaluates: ContextVar[bool] = ContextVar("evaluates", default=False)


@contextmanager
def eager() -> Iterator[None]:
    """Allow the CPU to compute values as soon as they are needed: for passes that no transformation traces.

    MLX computes exp and tanh there one number at a time, and gathered matrices one row at a time. Once there are values,
    numpy's vectorised functions can be used, and the rows of each expert counted (`zoo.arithmetic`). No gradient passes.
    """
    token = _evaluates.set(not on_gpu())
    try:
        yield
    finally:
        _evaluates.reset(token)


def evaluates(*arrays: Any) -> bool:
    """Whether this is inside `eager()`; the arrays then have their values."""
    if not _evaluates.get():
        return False
    import mlx.core as mx

    try:
        mx.eval(arrays)
    except ValueError:  # a block of a plugin is traced by mx.compile or mx.vmap of its own
        return False
    return True


def attention(queries: Any, keys: Any, values: Any, scale: float, mask: Any = None) -> Any:
    """softmax(Q Kᵀ · scale + mask) V in the fastest way here: (B, H, T, K), two of (B, G, S, K) -> (B, H, T, K).

    `mask` is any that `mx.fast.scaled_dot_product_attention` takes.
    """
    import mlx.core as mx

    many = queries.size // queries.shape[3] * keys.shape[2] >= MANY_NUMBERS and queries.dtype == mx.float32
    if not (many and evaluates(queries, keys, values)):
        return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=mask)
    from zoo import arithmetic

    return arithmetic.attention(queries, keys, values, scale, mask)


def row_groups(indices: Any) -> Sequence[tuple[slice, slice]] | None:
    """Of ascending indices (N,), each number, as a slice, and the rows that have it; None outside `eager()`."""
    if not evaluates(indices):
        return None
    from zoo import grouping

    return grouping.groups(indices)


def gather_matmul(x: Any, matrices: Any, indices: Any, in_order: bool = False) -> Any:
    """x @ matrices[indices], the matrices unmoved: (…, M, in), (E, in, out), (…) -> (…, M, out).

    `in_order` promises that `indices` (N,) ascend. The CPU backend knows this product in float32 only.
    """
    import mlx.core as mx

    if in_order and (groups := row_groups(indices)):
        from zoo import grouping

        return grouping.grouped_product(x, lambda part: matrices[part], groups)
    if on_gpu() or x.dtype == mx.float32:
        return mx.gather_mm(x, matrices, rhs_indices=indices, sorted_indices=in_order)
    wide = gather_matmul(x.astype(mx.float32), matrices.astype(mx.float32), indices, in_order)
    return wide.astype(x.dtype)


_process: int | None = None  # the one in which MLX's threads run


def check_process() -> None:
    """ZooError in a process that was forked from one in which a model was loaded: its first step would end it."""
    if _process is not None and os.getpid() != _process:
        raise ZooError(
            "this process was forked from one that had loaded a model, and MLX's threads do not survive a fork: "
            "start processes with multiprocessing.get_context('spawn'), and load the model in each"
        )


_peak = 0  # bytes: the most that MLX held since memory went back to the system


def wait() -> None:
    """Wait until everything that was begun is computed.

    A program that ends while MLX's thread computes may be aborted: the interpreter takes down what the thread uses.
    """
    import mlx.core as mx

    mx.synchronize()


def give_back() -> None:
    """Give freed memory back to the system, once there is much of it.

    On Linux the C library keeps what many small arrays took, the caches of a thousand texts for example.
    """
    global _peak
    import mlx.core as mx

    if sys.platform != "linux" or on_gpu():
        return
    active = mx.get_active_memory()
    if _peak - active < MOST_KEPT:
        _peak = max(_peak, active)
        return
    mx.clear_cache()
    _peak = active
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def prefill_chunk() -> int:
    """Prompt tokens a pass: bounds the memory of scores, (chunk × cached) a head, and the time of a pass.

    On the CPU, more tokens a pass are hardly faster, and other texts wait longer.
    """
    return 2048 if on_gpu() else 512


def by_layer() -> bool:
    """Whether a pass over many tokens is evaluated layer by layer.

    On the CPU it takes seconds, and Ctrl-C is heard between two evaluations. A GPU would be idle between them.
    """
    return not on_gpu()


def prepare() -> None:
    """Set the device up for a model: on Metal, keep as much memory wired as the system recommends."""
    import mlx.core as mx

    global _process
    _process = os.getpid()
    if on_gpu() and mx.metal.is_available():
        mx.set_wired_limit(int(mx.device_info()["max_recommended_working_set_size"]))


def peak_memory() -> int:
    """The most bytes that MLX has held at once."""
    import mlx.core as mx

    return mx.get_peak_memory()


def total_memory() -> int | None:
    """Bytes of memory in the machine."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def advice() -> list[str]:
    """What would make this machine faster, one line each."""
    lines = []
    if sys.platform == "linux" and not on_gpu():
        if "too late" in _blas:
            lines.append("import zoo before mlx, so that a fast BLAS can be loaded")
        elif _blas.startswith("MLX"):
            x86 = os.uname().machine in ("x86_64", "AMD64")
            name = _installing("mkl") if x86 else "install OpenBLAS (Debian: apt install libopenblas0)"
            lines.append(f"{name}: a fast BLAS for matrix products")
        elif _blas == "OpenBLAS" and os.uname().machine == "x86_64":
            lines.append(f"{_installing('mkl')}: MKL, faster still than OpenBLAS at decoding")
    return lines


def _installing(package: str) -> str:
    """The command that installs a package beside this zoo, however that was installed."""
    pip = f"{sys.executable} -m pip install" if find_spec("pip") else f"uv pip install -p {sys.executable}"
    return f"`{pip} {package}`"


def machine() -> str:
    """The system, the processor's architecture and its number of cores: "Linux x86_64, 2 cores"."""
    return f"{os.uname().sysname} {os.uname().machine}, {os.cpu_count()} cores"


def versions() -> dict[str, str]:
    """Where a figure was measured: versions of the zoo and of MLX, backend, BLAS, machine."""
    from importlib.metadata import version

    return {
        "mlx-zoo": version("mlx-zoo"),
        "mlx": version("mlx"),
        "backend": backend(),
        "blas": blas(),
        "machine": machine(),
    }
