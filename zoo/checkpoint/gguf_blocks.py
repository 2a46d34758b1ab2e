"""The blocks in which GGUF files pack numbers, taken apart to numbers, scales and biases.

A block holds 32 numbers of a row (256 in the kinds that end in K), the scales among them. Layouts:
https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h

Axes: N blocks, 8 groups of 32 numbers in a block of 256, O rows, I inputs, W words of 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

GROUP = 32  # numbers that share a scale

# The numbers q (N, …, 32) uint8, scale and bias (N, …) float32: what is meant is q · scale + bias.
Apart = tuple[np.ndarray, np.ndarray, np.ndarray]


def half(data: np.ndarray) -> np.ndarray:  # (N, 2) -> (N,)
    """The float16 in two bytes, as float32."""
    return np.ascontiguousarray(data).view(np.float16)[:, 0].astype(np.float32)


def nibbles(data: np.ndarray) -> np.ndarray:  # (N, 16) -> (N, 32)
    """Numbers of four bits: the low halves of all bytes, then the high ones."""
    return np.concatenate([data & 15, data >> 4], -1)


def fifth(data: np.ndarray) -> np.ndarray:  # (N, 4) -> (N, 32)
    """The fifth bits of 32 numbers, in their place."""
    return np.unpackbits(data, axis=-1, bitorder="little") << 4


def q4_0(data: np.ndarray) -> Apart:
    """A scale, four bits: (q − 8) · d."""
    scale = half(data[:, :2])
    return nibbles(data[:, 2:]), scale, -8 * scale


def q4_1(data: np.ndarray) -> Apart:
    """A scale and a least value, four bits: q · d + m."""
    return nibbles(data[:, 4:]), half(data[:, :2]), half(data[:, 2:4])


def q5_0(data: np.ndarray) -> Apart:
    """A scale, the fifth bits, the other four: (q − 16) · d."""
    scale = half(data[:, :2])
    return nibbles(data[:, 6:]) | fifth(data[:, 2:6]), scale, -16 * scale


def q5_1(data: np.ndarray) -> Apart:
    """A scale and a least value, the fifth bits, the other four: q · d + m."""
    return nibbles(data[:, 8:]) | fifth(data[:, 4:8]), half(data[:, :2]), half(data[:, 2:4])


def q8_0(data: np.ndarray) -> Apart:
    """A scale, bytes with a sign, which 128 more have not: (q − 128) · d."""
    scale = half(data[:, :2])
    return data[:, 2:] ^ 128, scale, -128 * scale


def q4_k(data: np.ndarray) -> Apart:
    """Scales (see `scales_k`), then four bits: q · scale − least."""
    return nibbles_k(data[:, 16:]), *scales_k(data)


def q5_k(data: np.ndarray) -> Apart:
    """Scales, 32 bytes whose bit g is the fifth of a number in group g, then the other four bits."""
    fifths = data[:, 16:48, None].swapaxes(1, 2) >> np.arange(8, dtype=np.uint8).reshape(8, 1) & 1
    return nibbles_k(data[:, 48:]) | fifths << 4, *scales_k(data)


def scales_k(data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # (N, 16 and more) -> two of (N, 8)
    """Scales and biases of the groups: numbers of six bits, times a float16 each."""
    from gguf.quants import Q4_K

    scale, least = Q4_K.get_scale_min(np.ascontiguousarray(data[:, 4:16]))
    return half(data[:, :2])[:, None] * scale, -half(data[:, 2:4])[:, None] * least


def nibbles_k(data: np.ndarray) -> np.ndarray:  # (N, 128) -> (N, 8, 32)
    """Numbers of four bits: 32 bytes hold a group in their low halves and the next one in their high halves."""
    pairs = data.reshape(-1, 4, 1, GROUP) >> np.array([0, 4], np.uint8).reshape(2, 1)
    return pairs.reshape(-1, 8, GROUP) & 15


def mxfp4(data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # (N, 17) -> (N, 32), (N,)
    """Numbers of four bits that are floats, and the byte that is their scale."""
    return nibbles(data[:, 1:]), data[:, 0]


# How many bits a number has, how many numbers a block, and how it is taken apart.
AFFINE: dict[str, tuple[int, int, Callable[[np.ndarray], Apart]]] = {
    "Q4_0": (4, 32, q4_0),
    "Q4_1": (4, 32, q4_1),
    "Q5_0": (5, 32, q5_0),
    "Q5_1": (5, 32, q5_1),
    "Q8_0": (8, 32, q8_0),
    "Q4_K": (4, 256, q4_k),
    "Q5_K": (5, 256, q5_k),
}


def words(numbers: np.ndarray, bits: int) -> np.ndarray:  # (O, I) -> (O, W)
    """Numbers of 4, 5 or 8 bits one behind the other, the lowest bit first, as MLX packs them."""
    data = np.ascontiguousarray(numbers)
    if bits == 4:
        pairs = data.view(np.uint16)
        data = (pairs | pairs >> 4).astype(np.uint8)
    elif bits == 5:
        eights = data.view(np.uint64)
        size = bits  # of what stands at the low end of each lane: a number, two, four
        for lane in (8, 16, 32):
            low = np.uint64(sum((1 << size) - 1 << place for place in range(0, 64, 2 * lane)))
            eights = eights & low | (eights & low << np.uint64(lane)) >> np.uint64(lane - size)
            size *= 2
        data = eights.reshape(-1, 1).view(np.uint8)[:, :bits]
    return np.ascontiguousarray(data).reshape(len(numbers), -1).view(np.uint32)
