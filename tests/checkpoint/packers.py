"""Quantized formats written bit by bit from their descriptions, and what their numbers are. No mlx, no torch.

Axes: O outputs, I inputs, G groups, W words of 32 bits.
"""

import json
import struct

import numpy as np

# The sixteen values of E2M1, and all of E4M3 but its NaN (OCP Microscaling Formats 1.0, sections 5.3.3 and 5.3.1).
FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def e4m3(byte):
    """The number that a byte means: a sign, four bits of exponent with a bias of 7, three of mantissa."""
    sign, exponent, mantissa = -1.0 if byte & 128 else 1.0, byte >> 3 & 15, byte & 7
    return sign * (mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7))


FP8 = np.array([np.nan if byte & 127 == 127 else e4m3(byte) for byte in range(256)], np.float32)


def bits_in_words(numbers, bits):
    """Rows of numbers, the first in the lowest bits of the first word: (R, N) -> (R, W), the last word filled up."""
    rows = []
    for row in numbers:
        whole = sum(int(number) << (bits * place) for place, number in enumerate(row))
        words = -(-len(row) * bits // 32)
        rows.append([whole >> (32 * word) & 0xFFFFFFFF for word in range(words)])
    return np.array(rows, np.uint32).view(np.int32)


def affine_numbers(codes, scales, zeros, groups):
    """scale · (code − zero) of codes (O, I), scales and zeros (O, G), each input's group (I,)."""
    return ((codes - zeros[:, groups]) * scales.astype(np.float64)[:, groups]).astype(np.float32)


AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # of eight outputs, which stand in a word from its lowest bits on


def awq(codes, scales, zeros):
    """AutoAWQ's gemm layout of codes (O, I), scales and zeros (O, G)."""

    def words(numbers):  # (R, O) -> (R, O / 8)
        return bits_in_words(
            numbers.reshape(len(numbers), -1, 8)[..., AWQ_ORDER].reshape(len(numbers), -1), 4
        )

    return {"qweight": words(codes.T), "qzeros": words(zeros.T), "scales": np.ascontiguousarray(scales.T)}


def gemv(codes, scales, zeros):
    """AutoAWQ's gemv layout of codes (O, I), scales and zeros (O, G): rows of whole words, as wide as their groups ask."""
    group = codes.shape[1] // scales.shape[1]
    words = {32: 4, 64: 2}.get(group, 1)
    padding = [(0, 0), (0, -scales.shape[1] % (8 * words))]
    return {
        "qweight": bits_in_words(codes, 4),
        "qzeros": bits_in_words(np.pad(zeros, padding), 4),
        "scales": np.pad(scales, padding),
    }


def gptq(codes, scales, zeros, groups, bits, less=1):
    """AutoGPTQ's layout; zero points are stored as so much `less`."""
    return {
        "qweight": np.ascontiguousarray(bits_in_words(codes, bits).T),
        "qzeros": bits_in_words((zeros.T - less) % 2**bits, bits),
        "scales": np.ascontiguousarray(scales.T),
        "g_idx": groups.astype(np.int32),
    }


def pack_quantized(codes, scales, zeros, bits):
    """compressed-tensors' pack-quantized; `zeros` None for symmetric ones."""
    parts = {
        "weight_packed": bits_in_words(codes, bits),
        "weight_scale": scales,
        "weight_shape": np.array(codes.shape, np.int64),
    }
    if zeros is not None:
        parts["weight_zero_point"] = np.ascontiguousarray(bits_in_words(zeros.T, bits).T)
    return parts


def halves_in_bytes(codes):
    """Two codes of four bits a byte, the first in the low half."""
    return (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8)


NAMES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "int32": "I32",
    "int64": "I64",
    "int8": "I8",
    "uint8": "U8",
}


def write_safetensors(path, tensors, kinds=()):
    """Tensors by name; `kinds` says which of bytes are of another dtype than U8, by name."""
    kinds, header, end = dict(kinds), {"__metadata__": {"format": "pt"}}, 0
    for name, array in tensors.items():
        span = [end, end + array.nbytes]
        dtype = kinds.get(name) or NAMES[array.dtype.name]
        header[name], end = {"dtype": dtype, "shape": list(array.shape), "data_offsets": span}, span[1]
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).tobytes())


def read_safetensors(path):
    """The float32 tensors of a file by name."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    return {
        name: np.frombuffer(
            data[8 + length + entry["data_offsets"][0] : 8 + length + entry["data_offsets"][1]], np.float32
        ).reshape(entry["shape"])
        for name, entry in header.items()
    }
