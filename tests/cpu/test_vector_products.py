"""One row is multiplied by `cblas_sgemv`, with the result of `cblas_sgemm`."""

import ctypes
import mmap
import os
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from zoo.cpu import symbols, vector_products

ROWS, PLAIN, TRANSPOSED = 101, 111, 112
WHERE = find_spec("scipy_openblas32")
pytestmark = pytest.mark.skipif(
    WHERE is None or os.uname().machine != "x86_64",
    reason="for OpenBLAS on x86-64, which the zoo brings on Linux",
)
INT, FLOAT, ARRAY = ctypes.c_int, ctypes.c_float, ctypes.c_void_p
GEMM = ctypes.CFUNCTYPE(None, *[INT] * 6, FLOAT, ARRAY, INT, ARRAY, INT, FLOAT, ARRAY, INT)
GEMV = ctypes.CFUNCTYPE(None, INT, INT, INT, INT, FLOAT, ARRAY, INT, ARRAY, INT, FLOAT, ARRAY, INT)


@pytest.fixture(scope="module")
def addresses():
    library = ctypes.CDLL(str(Path(WHERE.origin).parent / "lib" / "libscipy_openblas.so"))
    return [symbols.address(library, f"scipy_cblas_{name}") for name in ("sgemm", "sgemv")]


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_it_gives_what_the_product_of_matrices_gives(addresses, rows):
    made = vector_products.sgemm(*addresses)
    assert made not in addresses
    numbers = np.random.default_rng(0)

    def drawn(shape, transposed, padding):
        count, length = shape[::-1] if transposed == TRANSPOSED else shape
        return numbers.standard_normal((count, length + padding), np.float32)

    cases = product((1, 3, 64), (1, 7, 300), (PLAIN, TRANSPOSED), (PLAIN, TRANSPOSED), (0, 3), (0.0, 0.5))
    for width, depth, first, second, padding, kept in cases:
        a, b = drawn((rows, depth), first, padding), drawn((depth, width), second, padding)
        given = np.full((rows, width + padding), 2.0, np.float32)
        if kept == 0:
            given[:, :width] = np.nan  # what is not kept is not read
        results = given.copy(), given.copy()
        for address, c in zip((made, addresses[0]), results, strict=True):
            GEMM(address)(
                *(
                    ROWS,
                    first,
                    second,
                    rows,
                    width,
                    depth,
                    0.7,
                    a.ctypes.data,
                    a.shape[1],
                    b.ctypes.data,
                    b.shape[1],
                ),
                *(kept, c.ctypes.data, c.shape[1]),
            )
        assert np.allclose(*results, rtol=1e-4, atol=1e-4), (width, depth, first, second, padding, kept)


def test_only_one_row_goes_to_the_product_with_a_vector(addresses):
    seen = []
    gemm, gemv = (
        GEMM(lambda *told: seen.append(("gemm", told[3]))),
        GEMV(lambda *told: seen.append(("gemv", *told[1:4]))),
    )
    made = GEMM(vector_products.sgemm(*(ctypes.cast(one, ctypes.c_void_p).value for one in (gemm, gemv))))
    for rows, second in ((1, PLAIN), (1, TRANSPOSED), (2, PLAIN)):
        made(ROWS, PLAIN, second, rows, 30, 20, 1.0, None, 20, None, 30, 0.0, None, 30)
    made(102, PLAIN, PLAIN, 1, 30, 20, 1.0, None, 20, None, 30, 0.0, None, 30)
    assert seen == [("gemv", TRANSPOSED, 20, 30), ("gemv", PLAIN, 30, 20), ("gemm", 2), ("gemm", 1)]


def test_where_no_code_may_be_made_it_is_the_librarys_own(monkeypatch, addresses):
    monkeypatch.setattr(mmap, "PROT_EXEC", 2**20)  # what no system knows
    assert vector_products.sgemm(*addresses) == addresses[0]


def test_other_machines_have_the_librarys_own(monkeypatch):
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "host", "1", "1", "aarch64")))
    assert vector_products.sgemm(1, 2) == 1
