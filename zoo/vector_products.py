"""A `cblas_sgemm` that multiplies one row by `cblas_sgemv`. Linux on x86-64; imports no mlx.

MLX multiplies a vector by a matrix with `cblas_sgemm`, the product of matrices. On x86-64 OpenBLAS' packs the matrix for it, which
takes longer than the product; `cblas_sgemv` reads the matrix once. (On 64-bit Arm, OpenBLAS makes this choice itself.)
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


def sgemm(of_matrices: int, of_vectors: int) -> int:
    """The address of a `cblas_sgemm`, made of the addresses of a library's `cblas_sgemm` and `cblas_sgemv`.

    It is `of_matrices` itself on other machines, and where the system forbids to make code.
    """
    if os.uname().machine != "x86_64":
        return of_matrices
    code = CODE + pack("<Q", of_vectors) + CALL + JUMP[0] + pack("<Q", of_matrices) + JUMP[1]
    try:
        memory = mmap.mmap(-1, mmap.PAGESIZE)
    except OSError:
        return of_matrices
    memory[: len(code)] = code
    held = ctypes.c_char.from_buffer(memory)
    address = ctypes.addressof(held)
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    if protect(address, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC):
        return of_matrices
    _kept.append(held)  # as long as the process, which may call it at any time
    return address


_kept: list[ctypes.c_char] = []
