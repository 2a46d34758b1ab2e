"""Quantized matrices that pass through the weight rules as arrays do.

A rule renames a tensor, cuts its outputs apart, stacks it with others; all that can be done to packed numbers without
unpacking them. What cannot (cutting or joining along the inputs) unpacks the numbers, and records the matrix.

Axes: … stacked matrices, O outputs, I inputs, W words of 32 bits a row, G groups of inputs that share a scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any

import mlx.core as mx

from zoo.checkpoint.quantization_settings import AFFINE_BITS, AFFINE_GROUPS, FLOAT_MODES
from zoo.errors import CheckpointError
from zoo.frozen import Frozen, frozen

WORD = 32  # bits
NAN_SCALE = 0xFF  # of both E8M0 and E4M3
EXTRAS = ("global_scale", "permutation")  # what some formats have beside MLX's own parts
PARTS = ("weight", "scales", "biases", *EXTRAS)


@frozen()
class QuantizationSpec(Frozen):
    """How numbers are packed: `bits` each, `group_size` inputs to a scale, "affine", "mxfp4", "nvfp4" or "mxfp8"."""

    bits: int
    group_size: int
    mode: str = "affine"

    def __str__(self) -> str:
        return f"{self.mode} {self.bits} bits, groups of {self.group_size}"

    def as_json(self) -> dict[str, Any]:
        """The entry of a config.json."""
        return {"group_size": self.group_size, "bits": self.bits, "mode": self.mode}


@frozen()
class QuantizedMatrix(Frozen):
    """A matrix (…, O, I) of packed numbers: `weight` (…, O, W) uint32, `scales` and `biases` (…, O, G).

    `biases` are the numbers' own, of mode "affine" alone. `global_scale` (…, O or 1) multiplies each output.
    `permutation` (I,) says which input each column belongs to. `swapped` matrices are shown as (…, I, O).
    `floats` is the dtype of the numbers when they are unpacked, where it is not that of the scales. The quantization is
    `certain` where the format itself says so. `dequantized` collects the names of the matrices that had to be unpacked.
    """

    name: str
    weight: mx.array
    scales: mx.array
    biases: mx.array | None
    quantization: QuantizationSpec
    global_scale: mx.array | None = None
    permutation: mx.array | None = None
    swapped: bool = False
    floats: mx.Dtype | None = None
    certain: bool = False
    dequantized: set[str] = field(default_factory=set, repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the numbers."""
        *outer, outputs, _ = self.weight.shape
        inputs = self.scales.shape[-1] * self.quantization.group_size
        return (*outer, inputs, outputs) if self.swapped else (*outer, outputs, inputs)

    @property
    def ndim(self) -> int:
        return self.weight.ndim

    @property
    def dtype(self) -> mx.Dtype:
        """The dtype of the numbers when they are unpacked."""
        return self.floats or (mx.bfloat16 if self.biases is None else self.scales.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes that the packed parts take."""
        return sum(array.nbytes for array in self.parts().values())

    def parts(self) -> dict[str, mx.array]:
        """The arrays by the names of a quantized layer's parameters."""
        named = {name: getattr(self, name) for name in PARTS}
        return {name: array for name, array in named.items() if array is not None}

    def astype(self, dtype: mx.Dtype) -> QuantizedMatrix:
        """A copy in another float dtype. Scales that are single bytes or have a fixed dtype stay."""
        if self.biases is None or self.floats is not None:
            return replace(self, floats=dtype)
        return replace(self, scales=self.scales.astype(dtype), biases=self.biases.astype(dtype))

    def resolved(self, inputs: int) -> QuantizedMatrix:
        """The same with the quantization that its shapes have when rows hold `inputs` numbers.

        Words and groups alone fit several quantizations (8 bits in groups of 32 as well as 4 in groups of 64), so that
        what a config says is a guess until the model says how long a row is. CheckpointError when nothing fits.
        """
        words, groups = self.weight.shape[-1], self.scales.shape[-1]
        if self.certain:
            row = groups * self.quantization.group_size
            if inputs != row:
                raise CheckpointError(f"{self.name}: rows of {row} numbers, not {inputs}")
            return self
        specs = possible_specs(words, groups, self.biases is not None)
        found = next((spec for spec in specs if spec.group_size * groups == inputs), None)
        if found is None:
            raise CheckpointError(
                f"{self.name}: {words} words and {groups} scales a row hold no {inputs} numbers in a known quantization"
            )
        return replace(self, quantization=found)

    def dequantize(self, dtype: mx.Dtype | None = None) -> mx.array:
        """Unpack the numbers, and record the matrix in `dequantized`."""
        self.dequantized.add(self.name)
        return self.numbers(dtype)

    def numbers(self, dtype: mx.Dtype | None = None) -> mx.array:
        """The numbers themselves, (…, O, I)."""
        dtype = dtype or self.dtype
        wide = mx.float32 in (dtype, self.scales.dtype) or self.global_scale is not None
        exact = mx.float32 if wide else dtype
        scales, biases = self.scales, self.biases
        if biases is not None:
            scales, biases = scales.astype(exact), biases.astype(exact)
        matrix = mx.dequantize(self.weight, scales, biases, dtype=exact, **self.quantization.as_json())
        if self.global_scale is not None:
            matrix = matrix * self.global_scale[..., None]
        matrix = matrix.astype(dtype)
        if self.permutation is not None:
            matrix = matrix[..., mx.argsort(self.permutation)]
        return matrix.swapaxes(-1, -2) if self.swapped else matrix

    # The operations of the weight rules on arrays.

    @property
    def T(self) -> Any:
        return self.swapaxes(-1, -2) if self.ndim == 2 else self.dequantize().T

    def swapaxes(self, first: int, second: int) -> Any:
        """Outputs and inputs swapped, which only changes how the matrix is shown; or any axes but the inputs'."""
        axes = {first % self.ndim, second % self.ndim}
        if axes == {self.ndim - 2, self.ndim - 1}:
            return replace(self, swapped=not self.swapped)
        if self.swapped or self.global_scale is not None or self.ndim - 1 in axes:
            return self.dequantize().swapaxes(first, second)
        return self._each(lambda array: array.swapaxes(first, second))

    def reshape(self, *shape: int) -> Any:
        """Outputs divided among a new axis, or joined with one; inputs stay whole."""
        if self.swapped or shape[-1] != self.shape[-1]:
            return self.dequantize().reshape(*shape)
        return self._each(lambda array: array.reshape(*shape[:-1], array.shape[-1]))

    def __getitem__(self, index: object) -> Any:
        """Some of the outputs, or of the stacked matrices; or a range of the inputs, in whole groups."""
        steps = index if isinstance(index, tuple) else (index,)
        if Ellipsis in steps:
            ellipsis = steps.index(Ellipsis)
            missing = self.ndim - sum(step is not None for step in steps) + 1
            steps = (*steps[:ellipsis], *(slice(None),) * missing, *steps[ellipsis + 1 :])
        axes = sum(step is not None for step in steps)
        steps = (*steps, *(slice(None),) * (self.ndim - axes))
        if self._whole_groups(steps[-1]) and steps[:-1] == (slice(None),) * (self.ndim - 1):
            return self._of_inputs(steps[-1])
        if self.swapped and steps[-2:-1] == (slice(None),) and isinstance(steps[-1], slice):
            steps = (*steps[:-2], steps[-1], steps[-2])
        elif self.swapped or steps[-1] != slice(None) or not isinstance(steps[-2], slice):
            return self.dequantize()[index]
        return self._each(lambda array: array[steps])

    def _whole_groups(self, step: Any) -> bool:
        """Whether a step of an index is a range of whole groups of inputs, without the ends of a whole row."""
        plain = isinstance(step, slice) and step.step is None and isinstance(step.start, int) and step.stop
        if not plain or self.swapped or self.permutation is not None:
            return False
        return not any(end % self.quantization.group_size for end in (step.start, step.stop))

    def _of_inputs(self, step: slice) -> QuantizedMatrix:
        """The matrix with a range of its inputs."""
        size, bits = self.quantization.group_size, self.quantization.bits
        groups = slice(step.start // size, step.stop // size)
        words = slice(step.start * bits // WORD, step.stop * bits // WORD)
        biases = None if self.biases is None else self.biases[..., groups]
        return replace(self, weight=self.weight[..., words], scales=self.scales[..., groups], biases=biases)

    def _each(self, change: Any) -> QuantizedMatrix:
        parts = {name: change(array) for name, array in self.parts().items() if name not in EXTRAS}
        if self.global_scale is not None:
            parts["global_scale"] = change(_output_scale(self)[..., None]).squeeze(-1)
        return replace(self, **parts)


def possible_specs(words: int, groups: int, affine: bool) -> list[QuantizationSpec]:
    """The quantizations in which rows of so many words may have so many groups; `affine` ones have biases."""
    known = [(bits, group, "affine") for group in AFFINE_GROUPS for bits in AFFINE_BITS]
    if not affine:
        known = [(bits, group, mode) for mode, (bits, group) in FLOAT_MODES.items()]
    return [QuantizationSpec(*spec) for spec in known if spec[0] * spec[1] * groups == words * WORD]


def quantize_matrix(name: str, matrix: mx.array, quantization: QuantizationSpec) -> QuantizedMatrix:
    """A matrix (…, O, I) quantized. A row that holds NaN or infinity has scales that are NaN.

    MLX would pack it as some finite number, and hide the fault.
    """
    weight, scales, *biases = mx.quantize(matrix, **quantization.as_json())
    # By the sum of a row, in one pass: it overflows only for numbers too large to be packed with any use.
    numbers = matrix.astype(mx.float32) if matrix.dtype == mx.float16 else matrix
    known = mx.isfinite(numbers.sum(-1, keepdims=True))
    nan = mx.array(NAN_SCALE if scales.dtype == mx.uint8 else mx.nan, scales.dtype)
    scales = mx.where(known, scales, nan)
    return QuantizedMatrix(name, weight, scales, biases[0] if biases else None, quantization)


def is_float(array: mx.array | QuantizedMatrix) -> bool:
    """Whether an array or a packed matrix is of floats."""
    return mx.issubdtype(array.dtype, mx.floating)


def parameter_matches(wanted: mx.array, found: mx.array | QuantizedMatrix) -> bool:
    """Whether a parameter has the wanted shape and holds floats, or is packed in a quantization that fits its rows."""
    if isinstance(found, QuantizedMatrix) and not found.swapped and len(found.shape) == wanted.ndim:
        try:
            found = found.resolved(wanted.shape[-1])
        except CheckpointError:
            return False
    return tuple(wanted.shape) == tuple(found.shape) and is_float(found)


def as_array(tensor: object) -> mx.array:
    """The numbers of a tensor, packed or not."""
    return tensor.dequantize() if isinstance(tensor, QuantizedMatrix) else tensor


def join(tensors: Sequence[Any], axis: int) -> Any:
    """`mx.concatenate` for tensors of which some are packed: those of one quantization stay so along any axis but the inputs'."""
    first = tensors[0]
    if not any(isinstance(tensor, QuantizedMatrix) for tensor in tensors):
        return mx.concatenate(list(tensors), axis)
    alike = all(
        isinstance(tensor, QuantizedMatrix)
        and (tensor.quantization, tensor.swapped) == (first.quantization, first.swapped)
        and tensor.permutation is None
        and (tensor.biases is None) == (first.biases is None)
        and tensor.weight.shape[-1] == first.weight.shape[-1]
        for tensor in tensors
    )
    axis %= first.ndim
    if not alike or axis == first.ndim - (2 if first.swapped else 1):
        return mx.concatenate([as_array(tensor) for tensor in tensors], axis)
    # Where packed parts have O, a swapped matrix shows it last.
    stored_axis = first.ndim - 2 if first.swapped and axis == first.ndim - 1 else axis
    parts = {}
    for name in first.parts().keys() - set(EXTRAS):
        parts[name] = mx.concatenate([getattr(tensor, name) for tensor in tensors], stored_axis)
    if any(tensor.global_scale is not None for tensor in tensors):
        parts["global_scale"] = mx.concatenate([_output_scale(tensor) for tensor in tensors], stored_axis)
    return replace(first, **parts)


def read(tensor: object) -> Any:
    """A tensor, packed or not, of evaluated arrays that hold no other's memory."""
    if isinstance(tensor, QuantizedMatrix):
        return replace(tensor, **{name: read(part) for name, part in tensor.parts().items()})
    array = mx.contiguous(tensor)
    mx.eval(array)
    return array


def _output_scale(tensor: QuantizedMatrix) -> mx.array:
    """The factor of each output, (…, O)."""
    shape = tensor.weight.shape[:-1]
    return mx.ones(shape) if tensor.global_scale is None else mx.broadcast_to(tensor.global_scale, shape)
