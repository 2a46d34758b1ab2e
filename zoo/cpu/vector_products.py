"""A `cblas_sgemm` that multiplies one row by `cblas_sgemv`. Linux on x86-64; imports no mlx.

MLX multiplies a vector by a matrix with `cblas_sgemm`, the product of matrices. OpenBLAS first packs the matrix for that, which
takes longer than the product. `cblas_sgemv` reads the matrix once. Other processors than x86-64 keep the library's own function.

The newest releases do not make this needless. scipy-openblas32 0.3.34.481 does not hand a product with one row to `cblas_sgemv`
on x86-64: a vector times a matrix (1536, 576) takes 0.23 ms by `cblas_sgemm` and 0.05 ms by `cblas_sgemv`, on one thread of a
Skylake-X. MLX 0.32.4 calls `cblas_sgemm` for one row, too.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from struct import pack

# System V's calling convention. cblas_sgemm(order edi, transA esi, transB edx, M ecx, N r8d, K r9d, alpha xmm0, A, lda, B, ldb,
# beta xmm1, C, ldc), whose other arguments lie on the stack above the return address. C (M, N), A (M, K), B (K, N).
CODE = bytes.fromhex(
    "f3 0f 1e fa"  # endbr64
    "83 f9 01  75 60"  # M is 1, or: product of matrices
    "83 ff 65  75 5b"  # order is CblasRowMajor, or: product of matrices
    "b8 01 00 00 00"  # incX = 1
    "83 fe 6f  74 04"  # transA is CblasNoTrans, or:
    "8b 44 24 10"  # incX = lda
    "4c 8b 54 24 08"  # X = A
    "4c 8b 5c 24 28"  # Y = C
    "83 fa 6f  74 0d"  # transB is CblasNoTrans, or:
    "be 6f 00 00 00  44 89 c2  44 89 c9  eb 0b"  # B as it lies is (N, K): CblasNoTrans, N rows, K columns
    "be 70 00 00 00  44 89 ca  44 89 c1"  # it is (K, N): CblasTrans, K rows, N columns
    "4c 8b 44 24 18"  # the matrix is B,
    "44 8b 4c 24 20"  # its rows ldb apart
    "48 83 ec 08  6a 01  41 53  50  41 52"  # on the stack, aligned: incY = 1, Y, incX, X
    "48 b8"  # rax = cblas_sgemv, whose address follows
)
CALL = bytes.fromhex("ff d0  48 83 c4 28  c3")  # call it, clear the stack, return
JUMP = bytes.fromhex("48 b8"), bytes.fromhex("ff e0")  # to cblas_sgemm: its address stands between these


def sgemm(gemm: int, gemv: int) -> int:
    """The address of a `cblas_sgemm`, made of the addresses of a library's `cblas_sgemm` and `cblas_sgemv`.

    It is `gemm` itself on processors other than x86-64, and where the system does not allow new code.
    """
    if os.uname().machine != "x86_64":
        return gemm
    code = CODE + pack("<Q", gemv) + CALL + JUMP[0] + pack("<Q", gemm) + JUMP[1]
    return _executable(code) or gemm


def _executable(code: bytes) -> int | None:
    """The address of a copy of the code, which stays until the process ends; None where the system does not allow it."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    place = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    address = libc.mmap(None, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE, place, -1, 0)
    if address == ctypes.c_void_p(-1).value:
        return None
    ctypes.memmove(address, code, len(code))
    refused = libc.mprotect(address, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC)
    return None if refused else int(address)
