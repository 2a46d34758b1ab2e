"""Packers of the K types, which the gguf package only unpacks, from the blocks' published layout (ggml-common.h).

A block is 256 numbers of a row. They round to the nearest and choose no better scales than the range asks for.
"""

import numpy as np


def pack(array, kind):  # (…, I) -> (…, bytes of a row)
    """An array's blocks."""
    blocks = array.reshape(-1, 256).astype(np.float32)
    return PACKERS[kind](blocks).reshape(*array.shape[:-1], -1)


def halves(values):  # (N,) -> (N, 2) bytes
    return values.astype(np.float16)[:, None].view(np.uint8)


def over(values, scale):
    """values / scale, zero where the scale is."""
    return np.divide(values, scale, out=np.zeros_like(values), where=scale != 0)


def affine(blocks, bits):
    """q (N, 8, 32), the scales of scales and of least values (N,), and both in six bits (N, 8)."""
    groups = blocks.reshape(-1, 8, 32)
    least = np.minimum(groups.min(-1), 0)
    scale = (groups.max(-1) - least) / (2**bits - 1)
    d = (scale.max(-1) / 63).astype(np.float16).astype(np.float32)
    dmin = (-least.min(-1) / 63).astype(np.float16).astype(np.float32)
    scale6 = np.clip(np.rint(over(scale, d[:, None] + 0 * scale)), 0, 63).astype(np.uint8)
    least6 = np.clip(np.rint(over(-least, dmin[:, None] + 0 * least)), 0, 63).astype(np.uint8)
    used = (d[:, None] * scale6)[..., None] + 0 * groups
    q = np.rint(over(groups + (dmin[:, None] * least6)[..., None], used))
    return np.clip(q, 0, 2**bits - 1).astype(np.uint8), d, dmin, scale6, least6


def six_bits(scale, least):  # two of (N, 8) -> (N, 12)
    """Groups 0 to 3 in the low six bits of bytes 0 to 7; of 4 to 7 four bits in bytes 8 to 11, two bits above those."""
    first = scale[:, :4] | (scale[:, 4:] >> 4 << 6)
    second = least[:, :4] | (least[:, 4:] >> 4 << 6)
    return np.concatenate([first, second, (scale[:, 4:] & 15) | (least[:, 4:] & 15) << 4], -1)


def low_bits(q):  # (N, 8, 32) -> (N, 128)
    """The lowest four bits: groups 2j and 2j + 1 in the halves of 32 bytes."""
    return ((q[:, 0::2] & 15) | (q[:, 1::2] & 15) << 4).reshape(-1, 128)


def q4_k(blocks):
    q, d, dmin, scale, least = affine(blocks, 4)
    return np.concatenate([halves(d), halves(dmin), six_bits(scale, least), low_bits(q)], -1)


def q5_k(blocks):
    q, d, dmin, scale, least = affine(blocks, 5)
    fifth = ((q >> 4) << np.arange(8, dtype=np.uint8)[:, None]).sum(1).astype(np.uint8)  # (N, 32)
    return np.concatenate([halves(d), halves(dmin), six_bits(scale, least), fifth, low_bits(q)], -1)


def q6_k(blocks):
    """Groups of 16, scales of eight bits with a sign; numbers 0 to 63 stand for −32 to 31."""
    groups = blocks.reshape(-1, 16, 16)
    scale = np.abs(groups).max(-1) / 31
    d = (scale.max(-1) / 127).astype(np.float16).astype(np.float32)
    scale8 = np.clip(np.rint(over(scale, d[:, None] + 0 * scale)), -128, 127).astype(np.int8)
    used = (d[:, None] * scale8)[..., None] + 0 * groups
    q = (np.clip(np.rint(over(groups, used)), -32, 31) + 32).astype(np.uint8).reshape(-1, 2, 4, 32)
    low = np.concatenate(
        [(q[:, :, 0] & 15) | (q[:, :, 2] & 15) << 4, (q[:, :, 1] & 15) | (q[:, :, 3] & 15) << 4], -1
    )
    high = (q >> 4 << np.array([0, 2, 4, 6], np.uint8)[:, None]).sum(2).astype(np.uint8)  # (N, 2, 32)
    rows = len(blocks)
    return np.concatenate(
        [low.reshape(rows, -1), high.reshape(rows, -1), scale8.view(np.uint8), halves(d)], -1
    )


PACKERS = {"Q4_K": q4_k, "Q5_K": q5_k, "Q6_K": q6_k}
