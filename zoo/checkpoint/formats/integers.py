"""Whole numbers with a scale and a zero point for each group of inputs, as MLX's affine quantization; GPTQ and AWQ.

number = scale · (code − zero) = scale · code + bias, where MLX's groups are of 32, 64 or 128 inputs that follow one
another. Larger groups repeat their scale; groups of scattered inputs become such by a permutation of the inputs.

Codes of a few bits are packed consecutively from the lowest bit of the first 32-bit word. A run is the fewest words that
hold a whole count of numbers: 8 numbers a word for 4 bits, 32 in three words for 3.

Axes: … others, O outputs, I inputs, W words, N numbers, G groups, B blocks of inputs that follow one another and share
a scale.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

import mlx.core as mx

from zoo.checkpoint.quantization_settings import AFFINE_BITS, AFFINE_GROUPS, choice, refused
from zoo.checkpoint.quantized_matrix import WORD, QuantizationSpec, QuantizedMatrix, is_float
from zoo.checkpoint.quantized_tensors import FormatReader, is_words, mismatched_parts
from zoo.checkpoint.safetensors import Tensors
from zoo.errors import CheckpointError

BLOCKS = tuple(sorted(AFFINE_GROUPS, reverse=True))
GPTQ_BITS = (2, 3, 4, 5, 6, 7, 8)
AWQ_BITS = 4
AWQ_EACH = 8  # numbers a word
AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)  # where in its word each of eight outputs is


@dataclass(frozen=True)
class Grouping:
    """Which group each input is in: `groups` (I,). In the order of `permutation`, each `block` of inputs share one.

    `blocks` (B,) are those; None where they are all the groups in turn. `block` is None where no size that MLX knows
    divides the groups.
    """

    groups: mx.array
    block: int | None
    blocks: mx.array | None = None
    permutation: mx.array | None = None


def consecutive(inputs: int, size: int) -> Grouping:
    """Groups of `size` inputs that follow one another; the last may be smaller."""
    block = next((block for block in BLOCKS if size % block == 0 and inputs % block == 0), None)
    groups = mx.arange(inputs) // size
    return Grouping(groups, block, groups[::block] if block not in (None, size) else None)


def in_turn(inputs: int, groups: int, sizes: Iterable[Any]) -> Grouping | None:
    """So many groups of consecutive inputs; None where the inputs cannot be divided so.

    The size of a group is the first of `sizes`, which a config names, that gives this number of groups. Without one the groups
    are equal.
    """
    for size in sizes:
        if type(size) is int and size > 0 and -(-inputs // size) == groups:
            return consecutive(inputs, size)
    return None if inputs % groups else consecutive(inputs, inputs // groups)


def scattered(name: str, index: mx.array, groups: int) -> Grouping:
    """The grouping that the tensor `name`, each input's group (I,), makes; CheckpointError for a group out of range.

    It is read here, since the shapes of what is computed depend on it.
    """
    with mx.stream(mx.cpu):  # each answer is waited for
        index = index.astype(mx.int32)
        mixed = (index[1:] < index[:-1]).any().astype(mx.int32)
        low, high, unordered = mx.stack([index.min(), index.max(), mixed]).tolist()
        if low < 0 or high >= groups:
            raise CheckpointError(f"{name}: groups {low} to {high}, but there are {groups}")
        order = mx.argsort(index) if unordered else None
        ordered = index if order is None else index[order]
        block = next((block for block in BLOCKS if _fits(ordered, block)), None)
        return Grouping(index, block, None if block is None else ordered[::block], order)


def _fits(index: mx.array, block: int) -> bool:
    """Whether each `block` of inputs are of one group."""
    blocks = index.reshape(-1, block) if index.size % block == 0 else None
    return blocks is not None and bool((blocks == blocks[:, :1]).all().item())


def affine(
    reader: FormatReader,
    name: str,
    words: mx.array,
    bits: int,
    scales: mx.array,
    zeros: mx.array | int,
    grouping: Grouping,
) -> None:
    """Add to the reading the matrix of `words` (O, W), `scales` (O, G) and `zeros`: (O, G), or one power of two for all.

    Where the zero points differ, −scale · zero needs more bits than a half has: scales and biases are float32 then.
    """
    inputs, differ = grouping.groups.size, isinstance(zeros, mx.array)
    wide = scales.astype(mx.float32) if differ else scales
    if grouping.block is None or bits not in AFFINE_BITS:
        codes = unpack(words, bits)[:, :inputs].astype(mx.float32)
        offsets = zeros[:, grouping.groups].astype(mx.float32) if isinstance(zeros, mx.array) else zeros
        reader.give(name, (codes - offsets) * wide.astype(mx.float32)[:, grouping.groups])
        return
    biases = -wide * zeros
    if grouping.blocks is not None:
        # Rows are gathered several times faster than columns.
        wide, biases = wide.T[grouping.blocks].T, biases.T[grouping.blocks].T
    if grouping.permutation is not None:
        words = reorder(words.T, bits, grouping.permutation).T
    spec, order = QuantizationSpec(bits, grouping.block), grouping.permutation
    words, floats = words.view(mx.uint32), scales.dtype if differ else None
    matrix = QuantizedMatrix(name, words, wide, biases, spec, permutation=order, floats=floats, certain=True)
    reader.give(name, matrix)


def signed_bytes(codes: mx.array) -> tuple[mx.array, int]:
    """Signed bytes (O, I) as words (O, W) of bytes that are so much more, and how much that is: their zero point."""
    raised = codes.view(mx.uint8) ^ 128
    return mx.pad(raised, [(0, 0), (0, -codes.shape[1] % (WORD // 8))]).view(mx.uint32), 128


def run_of(bits: int) -> tuple[int, int]:
    """The words of a run, and the numbers in it."""
    return bits // gcd(bits, WORD), WORD // gcd(bits, WORD)


def unpack(words: mx.array, bits: int, order: Sequence[int] | None = None) -> mx.array:
    """The numbers in words, (…, W) -> (…, N) uint8; what is missing of the last run is zeros.

    `order` names which number of a run comes first, second and so on.
    """
    length, count = run_of(bits)
    words = words.view(mx.uint32)
    if words.shape[-1] % length:
        words = mx.pad(words, [*[(0, 0)] * (words.ndim - 1), (0, -words.shape[-1] % length)])
    runs = words.reshape(*words.shape[:-1], -1, length)
    numbers = []
    for position in order or range(count):
        word, low = divmod(position * bits, WORD)
        number = runs[..., word] >> low
        if low + bits > WORD:
            number = number | runs[..., word + 1] << (WORD - low)
        numbers.append((number & (2**bits - 1)).astype(mx.uint8))
    return mx.stack(numbers, axis=-1).flatten(-2)


def pack(codes: mx.array, bits: int) -> mx.array:
    """Numbers in words, (…, N) -> (…, W); the last run is filled with zeros. The inverse of `unpack`."""
    length, count = run_of(bits)
    codes = mx.pad(codes, [*[(0, 0)] * (codes.ndim - 1), (0, -codes.shape[-1] % count)]).astype(mx.uint32)
    runs = codes.reshape(*codes.shape[:-1], -1, count)
    words = [mx.zeros(runs.shape[:-1], mx.uint32) for _ in range(length)]
    for position in range(count):
        word, low = divmod(position * bits, WORD)
        words[word] = words[word] | runs[..., position] << low
        if low + bits > WORD:
            words[word + 1] = words[word + 1] | runs[..., position] >> (WORD - low)
    return mx.stack(words, axis=-1).flatten(-2)


def repeated(number: int, bits: int) -> list[int]:
    """The words of a run of one number."""
    length, count = run_of(bits)
    whole = sum(number << bits * position for position in range(count))
    return [whole >> WORD * word & (2**WORD - 1) for word in range(length)]


def reorder(words: mx.array, bits: int, order: mx.array) -> mx.array:
    """Reorder numbers packed along the first axis, (W, O), by `order` (N,), in whole runs."""
    length, count = run_of(bits)
    words = words.view(mx.uint32)
    runs: dict[int, mx.array] = {}
    for position in range(count):
        bit = order[position::count].astype(mx.uint32) * bits
        word, low = bit // WORD, (bit % WORD)[:, None]
        number = words[word] >> low
        if length > 1:  # numbers that go on in the next word
            over = low + bits > WORD
            rest = words[mx.minimum(word + 1, words.shape[0] - 1)] << mx.where(over, WORD - low, 0)
            number = number | mx.where(over, rest, 0)
        number = number & (2**bits - 1)
        at, shift = divmod(position * bits, WORD)
        runs[at] = runs[at] | number << shift if at in runs else number << shift
        if shift + bits > WORD:
            runs[at + 1] = number >> (WORD - shift)
    return mx.stack([runs[at] for at in range(length)], axis=1).flatten(0, 1)


def transpose_nibbles(words: mx.array) -> list[mx.array]:
    """Eight rows of words of eight 4-bit numbers, (8R, C): number k of row r becomes number r of the k-th of the list.

    Each of eight (R, C). Halves of the squares change places, then their quarters (Warren, Hacker's Delight, 7-3).
    """
    blocks = words.view(mx.uint32).reshape(-1, 8, words.shape[-1])
    rows = [blocks[:, row] for row in range(8)]
    for step, mask in ((4, 0x0000FFFF), (2, 0x00FF00FF), (1, 0x0F0F0F0F)):
        shift = 4 * step
        for row in range(8):
            if not row & step:
                differ = (rows[row] >> shift ^ rows[row + step]) & mask
                rows[row + step] = rows[row + step] ^ differ
                rows[row] = rows[row] ^ differ << shift
    return rows


def read_gptq(tensors: Tensors, settings: Mapping[str, Any], dtype: mx.Dtype | None = None) -> Tensors:
    """GPTQ matrices packed as MLX holds them. ConfigError for another layout; CheckpointError naming a tensor.

    As AutoGPTQ and GPTQModel write it (Frantar et al., 2022; https://github.com/AutoGPTQ/AutoGPTQ): `qweight`
    (I · bits / 32, O) packs along the inputs, `qzeros` (G, O · bits / 32) along the outputs; `scales` (G, O); `g_idx` (I,)
    says which group each input is in. The first `checkpoint_format`, "gptq", stores each zero point less one, modulo
    2^bits; "gptq_v2" stores it as it is.
    """
    older = "marlin" if settings.get("is_marlin_format") else settings.get("format") or "gptq"
    layout = choice(settings, "checkpoint_format", ("gptq", "gptq_v2"), older)
    reader = FormatReader(tensors, dtype)
    for owner in reader.owners(".qweight"):
        _gptq_matrix(reader, owner, settings, less_one=layout == "gptq")
    return reader.result()


def _gptq_matrix(reader: FormatReader, owner: str, settings: Mapping[str, Any], less_one: bool) -> None:
    """Add a matrix; its groups are those of its `g_idx`, else of `group_size` inputs, else as many as fit the scales."""
    name = f"{owner}.qweight"
    codes = reader.need(name, name)
    zeros = reader.need(f"{owner}.qzeros", name)
    scales = reader.need(f"{owner}.scales", name)
    index = reader.take(f"{owner}.g_idx")
    parts = {name: codes, f"{owner}.qzeros": zeros, f"{owner}.scales": scales, f"{owner}.g_idx": index}
    if not (codes.ndim == zeros.ndim == scales.ndim == 2) or not is_float(scales):
        raise mismatched_parts(parts)
    bits, rest = divmod(zeros.shape[1] * WORD, codes.shape[1])
    if rest or bits not in GPTQ_BITS or not is_words(codes) or not is_words(zeros):
        raise mismatched_parts(parts)
    inputs, rest = divmod(codes.shape[0] * WORD, bits)
    indexed = index is None or (index.shape == (inputs,) and mx.issubdtype(index.dtype, mx.integer))
    if rest or scales.shape != (zeros.shape[0], codes.shape[1]) or not indexed:
        raise mismatched_parts(parts)
    if index is None:
        grouping = in_turn(inputs, len(scales), [settings.get("group_size")])
    else:
        grouping = scattered(f"{owner}.g_idx", index, len(scales))
    if grouping is None:
        raise mismatched_parts({name: codes, f"{owner}.scales": scales})
    middle = 2 ** (bits - 1)
    points: mx.array | int = middle
    # Zero points in the middle by either layout, since some writers name the wrong one, make biases of
    # −scale · 2^(bits − 1), which are exact in a half. They are read for it.
    if not (settings.get("sym", True) and any(_all_are(zeros, bits, middle - less) for less in (1, 0))):
        points = unpack(zeros, bits).T  # (O, G)
        points = (points + 1) & (2**bits - 1) if less_one else points
    affine(reader, f"{owner}.weight", codes.T, bits, scales.T, points, grouping)


def _all_are(words: mx.array, bits: int, number: int) -> bool:
    """Whether each number in the words is this one."""
    run = mx.array(repeated(number, bits), mx.uint32)
    return bool((words.view(mx.uint32).reshape(-1, run.size) == run).all().item())


def read_awq(tensors: Tensors, settings: Mapping[str, Any], dtype: mx.Dtype | None = None) -> Tensors:
    """AWQ matrices packed as MLX holds them. ConfigError for another layout; CheckpointError naming a tensor.

    As AutoAWQ writes it (Lin et al., 2023; https://github.com/casper-hansen/AutoAWQ). In its "gemm" layout `qweight`
    (I, O/8) and `qzeros` (G, O/8) hold eight 4-bit numbers a word, of outputs 0, 2, 4, 6, 1, 3, 5, 7 of eight; `scales`
    (G, O); groups of I/G inputs that follow one another. In "gemv", `qweight` (O, I/8) and `qzeros` (O, ≥ G/8) hold eight
    numbers that follow one another; `scales` (O, ≥ G); beyond its groups a row is filled up.
    """
    versions = [
        choice(settings, key, ("gemm", "gemv"), "gemm") for key in ("version", "format", "checkpoint_format")
    ]
    bits = settings.get("bits", settings.get("w_bit", AWQ_BITS))
    if bits != AWQ_BITS:
        raise refused(settings, f"awq: bits {bits!r} cannot be loaded; known: {AWQ_BITS}")
    reader = FormatReader(tensors, dtype)
    for owner in reader.owners(".qweight"):
        if "gemv" in versions:
            _gemv_matrix(reader, owner, settings)
        else:
            _awq_matrix(reader, owner, zero_point=bool(settings.get("zero_point", True)))
    return reader.result()


def _gemv_matrix(reader: FormatReader, owner: str, settings: Mapping[str, Any]) -> None:
    """Add a matrix of the "gemv" layout, whose padded rows leave the size of a group to the config."""
    name, size = f"{owner}.qweight", settings.get("group_size", settings.get("q_group_size"))
    codes = reader.need(name, name)
    zeros, scales = reader.need(f"{owner}.qzeros", name), reader.need(f"{owner}.scales", name)
    parts = {name: codes, f"{owner}.qzeros": zeros, f"{owner}.scales": scales}
    if not (codes.ndim == zeros.ndim == scales.ndim == 2 and is_words(codes) and is_words(zeros)):
        raise mismatched_parts(parts)
    inputs = codes.shape[1] * AWQ_EACH
    size = inputs if size == -1 else size
    if type(size) is not int or size < 1 or inputs % size:
        raise refused(settings, f"awq: group_size {size!r} does not divide the {inputs} inputs of {name}")
    groups, rows = inputs // size, {len(codes), len(zeros), len(scales)}
    if len(rows) > 1 or not is_float(scales) or min(scales.shape[1], zeros.shape[1] * AWQ_EACH) < groups:
        raise mismatched_parts(parts)
    points = unpack(zeros, AWQ_BITS)[:, :groups]
    affine(reader, f"{owner}.weight", codes, AWQ_BITS, scales[:, :groups], points, consecutive(inputs, size))


def _awq_matrix(reader: FormatReader, owner: str, zero_point: bool) -> None:
    name = f"{owner}.qweight"
    codes = reader.need(name, name)
    scales = reader.need(f"{owner}.scales", name)
    zeros = reader.need(f"{owner}.qzeros", name) if zero_point else reader.take(f"{owner}.qzeros")
    parts = {name: codes, f"{owner}.scales": scales, f"{owner}.qzeros": zeros}
    if codes.ndim != 2 or scales.ndim != 2 or not is_words(codes) or not is_float(scales):
        raise mismatched_parts(parts)
    (inputs, words), (groups, outputs) = codes.shape, scales.shape
    centred = zeros is None or (zeros.shape == (groups, words) and is_words(zeros))
    if outputs != AWQ_EACH * words or inputs % groups or inputs % AWQ_EACH or not centred:
        raise mismatched_parts(parts)
    points = 2 ** (AWQ_BITS - 1) if zeros is None else unpack(zeros, AWQ_BITS, AWQ_ORDER).T  # (O, G)
    columns = transpose_nibbles(codes)  # each (W, O/8): every eighth output's words
    rows = mx.stack([columns[index].T for index in AWQ_ORDER], axis=1).flatten(0, 1)  # (O, W)
    affine(reader, f"{owner}.weight", rows, AWQ_BITS, scales.T, points, consecutive(inputs, inputs // groups))
