"""The blocks in which GGUF files pack numbers, unpacked to numbers, scales and biases.

A block holds 32 numbers of a row (256 in the kinds that end in K), the scales among them. Layouts:
https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h

Axes: N blocks, 8 groups of 32 numbers in a block of 256, O rows, I inputs, W words of 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

GROUP = 32  # numbers that share a scale

# The numbers q as MLX packs them (N, W) uint32, scale and bias (N, …) float32: what is meant is q · scale + bias.
Apart = tuple[np.ndarray, np.ndarray, np.ndarray]


def half(data: np.ndarray) -> np.ndarray:  # (N, 2) -> (N,)
    """The float16 in two bytes, as float32."""
    return np.ascontiguousarray(data).view(np.float16)[:, 0].astype(np.float32)


def nibbles(data: np.ndarray, run: int = 16) -> np.ndarray:  # (N, bytes) -> (N, W)
    """Words of numbers of four bits: the low halves of `run` bytes, then the high ones, then the next bytes."""
    pairs = np.ascontiguousarray(data).view(np.uint16)
    found = np.empty((len(data), data.shape[1] // run, 2, run // 16), np.uint64)
    for half_index, shift in enumerate((0, 4)):
        two = pairs >> np.uint16(shift)
        two &= np.uint16(0x0F0F)  # a number in each byte
        two |= two >> np.uint16(4)
        # Eight bytes at once: numpy is slow at rows of few.
        found[:, :, half_index] = two.astype(np.uint8).view(np.uint64).reshape(found[:, :, half_index].shape)
    return found.reshape(len(data), -1).view(np.uint32)


def fifth(data: np.ndarray) -> np.ndarray:  # (N, 4) -> (N, 32)
    """The fifth bits of 32 numbers, shifted into position."""
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
    return fives(halves(data[:, 6:]) | fifth(data[:, 2:6])), scale, -16 * scale


def q5_1(data: np.ndarray) -> Apart:
    """A scale and a least value, the fifth bits, the other four: q · d + m."""
    numbers = halves(data[:, 8:]) | fifth(data[:, 4:8])
    return fives(numbers), half(data[:, :2]), half(data[:, 2:4])


def halves(data: np.ndarray) -> np.ndarray:  # (N, 16) -> (N, 32)
    """Numbers of four bits: the low halves of all bytes, then the high ones."""
    return np.concatenate([data & 15, data >> 4], -1)


def q8_0(data: np.ndarray) -> Apart:
    """A scale and signed bytes, made unsigned by adding 128: (q − 128) · d."""
    scale = half(data[:, :2])
    return (data[:, 2:] ^ 128).view(np.uint32), scale, -128 * scale


def q4_k(data: np.ndarray) -> Apart:
    """Scales (see `scales_k`), then four bits: q · scale − least."""
    return nibbles(data[:, 16:], GROUP), *scales_k(data)


def q5_k(data: np.ndarray) -> Apart:
    """Scales, 32 bytes whose bit g is the fifth of a number in group g, then the other four bits."""
    numbers = np.empty((len(data), 4, 2, GROUP), np.uint8)
    halved(data[:, 48:].reshape(-1, 4, GROUP), numbers.swapaxes(1, 2))
    for group in range(8):
        numbers[:, group // 2, group % 2] |= shifted(data[:, 16:48], 4 - group) & 16
    return fives(numbers.reshape(len(data), -1)), *scales_k(data)


def q6_k(data: np.ndarray) -> np.ndarray:  # (N, 210) -> (N, 256)
    """The numbers themselves, float32: four bits, two more, scales of 16 numbers, and a scale of those, (q − 32) · s · d."""
    numbers = np.empty((len(data), 2, 4, GROUP), np.uint8)
    halved(
        data[:, :128].reshape(-1, 2, 2, GROUP), numbers.reshape(-1, 2, 2, 2, GROUP).transpose(0, 2, 1, 3, 4)
    )
    upper = data[:, 128:192].reshape(-1, 2, GROUP)
    for index in range(4):
        numbers[:, :, index] |= shifted(upper, 4 - 2 * index) & 48
    numbers -= 32
    scale = data[:, 192:208].view(np.int8).astype(np.float32) * half(data[:, 208:])[:, None]
    found = numbers.view(np.int8).reshape(-1, 16, 16).astype(np.float32)
    found *= scale[:, :, None]
    return found.reshape(len(data), -1)


def halved(data: np.ndarray, numbers: np.ndarray) -> None:  # (N, …) into (N, 2, …)
    """Write the low halves of bytes to `numbers[:, 0]`, the high halves to `numbers[:, 1]`."""
    np.bitwise_and(data, 15, out=numbers[:, 0])
    np.right_shift(data, 4, out=numbers[:, 1])


def shifted(data: np.ndarray, by: int) -> np.ndarray:
    """Bytes shifted to the left, or to the right by a negative number."""
    return data << by if by >= 0 else data >> -by


def scales_k(data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # (N, 16 and more) -> two of (N, 8)
    """Scales and biases of the groups: numbers of six bits, times a float16 each."""
    from gguf.quants import Q4_K

    scale, least = Q4_K.get_scale_min(np.ascontiguousarray(data[:, 4:16]))
    return half(data[:, :2])[:, None] * scale, -half(data[:, 2:4])[:, None] * least


def mxfp4(data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # (N, 17) -> (N, 4), (N,)
    """Words of numbers of four bits that are floats, and the byte that is their scale."""
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
# Kinds that no quantization holds, taken apart here since the gguf package takes several times as long.
DENSE: dict[str, tuple[int, Callable[[np.ndarray], np.ndarray]]] = {"Q6_K": (256, q6_k)}


def fives(numbers: np.ndarray) -> np.ndarray:  # (N, 32 or more) -> (N, W)
    """Words of consecutive numbers of five bits, lowest bit first, as MLX packs them."""
    eights = np.ascontiguousarray(numbers).view(np.uint64)
    size = 5  # of what stands at the low end of each lane: a number, two, four
    for lane in (8, 16, 32):
        low = np.uint64(sum((1 << size) - 1 << start for start in range(0, 64, 2 * lane)))
        eights = eights & low | (eights & low << np.uint64(lane)) >> np.uint64(lane - size)
        size *= 2
    data = eights.reshape(-1, 1).view(np.uint8)[:, :5]
    return np.ascontiguousarray(data).reshape(len(numbers), -1).view(np.uint32)
