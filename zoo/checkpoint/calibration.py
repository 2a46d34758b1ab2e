"""Quantization that reads a text: what a method is asked, and the check of what it gives back.

The methods are a plugin's records (`zoo_quantizers`). `zoo convert` takes the parameters that a method returns in the place
of the checkpoint's, and quantizes all others as it does without a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from zoo.architecture import Quantizer
from zoo.checkpoint.open import Opened, Report
from zoo.checkpoint.quantized_matrix import QuantizationSpec, QuantizedMatrix
from zoo.errors import PluginError, ZooError
from zoo.frozen import Frozen, frozen
from zoo.host.registry import Registry

METHOD = "gptq"


@frozen()
class Calibration(Frozen):
    """The text that a quantization reads: at most `rows` rows of `length` tokens, spread over the file or folder `text`.

    `method` names a `Quantizer`. `bits` is the most bits of a weight on average, scales included, for methods that choose
    the bits of each matrix. `report` is called with the matrices done and all. ZooError for a number out of range.

    >>> from pathlib import Path
    >>> from zoo.checkpoint.calibration import Calibration
    >>> from zoo.checkpoint.convert import convert
    >>> _ = Path("notes.txt").write_text("The capital city of China is Beijing. " * 40)
    >>> by_text = Calibration(Path("notes.txt"), "gptq", rows=4, length=64)
    >>> round(convert("llama", "by-text", quantize="4", calibration=by_text).bits, 2)
    4.51
    """

    text: Path
    method: str = METHOD
    bits: float | None = None
    rows: int = 64
    length: int = 512
    report: Report | None = None

    def __post_init__(self) -> None:
        for name in ("rows", "length"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ZooError(f"`calibration_{name}` must be at least 1, got {value!r:.60}")
        if self.bits is not None and not 0 < self.bits <= 32:
            raise ZooError(f"`bits` must be from 0 to 32, got {self.bits!r:.60}")

    def check(self, registry: Registry, packs: bool, adapter: object) -> None:
        """ZooError for what cannot be, before a checkpoint is opened: `packs` says whether a quantization is asked for."""
        quantizer = registry.table(Quantizer).require(self.method)
        if not packs:
            raise ZooError("`calibrate` says how `quantize` rounds: give that too")
        if adapter is not None:
            raise ZooError(
                "`calibrate` reads a model without an adapter: convert with `adapter` first, then quantize"
            )
        if self.bits is not None and not quantizer.budget:
            raise ZooError(f"`bits`: {quantizer.name} gives every matrix the bits of `quantize`")
        if not self.text.exists():
            raise ZooError(f"`calibrate`: {self.text} is no file or folder")


@dataclass(frozen=True)
class CalibrationTask:
    """What a method gets: the `opened` checkpoint, the `calibration`, and `quantizations`, what is asked by parameter path.

    `dtype` is that of stored floats, None for the checkpoint's own. The parameters of `opened` may be unread: `zoo.load`
    of `opened.checkpoint.path` gives a model that runs.
    """

    opened: Opened
    calibration: Calibration
    quantizations: Mapping[str, QuantizationSpec]
    dtype: mx.Dtype | None

    def float_dtype(self, path: str) -> mx.Dtype:
        """The dtype in which the floats of a parameter, or its scales, are stored."""
        return self.dtype or self.opened.parameters[path].dtype


def calibrated(
    task: CalibrationTask, registry: Registry
) -> tuple[dict[str, Any], dict[str, QuantizationSpec]]:
    """The parameters that the task's method gives, and the quantization of each matrix.

    ZooError for a checkpoint that is quantized already, PluginError for what is no parameter of the model.
    """
    if any(isinstance(tensor, QuantizedMatrix) for tensor in task.opened.parameters.values()):
        folder = task.opened.checkpoint.path
        raise ZooError(
            f"{folder}: is quantized already, and `calibrate` rounds floats: give those that it was made from, or what "
            f"`zoo convert {folder} FOLDER -q none` unpacks"
        )
    quantizer = registry.table(Quantizer).require(task.calibration.method)
    given = quantizer.load()(task)
    fault = f"quantizer {quantizer.name}: {quantizer.target}"
    if not isinstance(given, Mapping):
        raise PluginError(f"{fault} gave {type(given).__name__}, not a dict")
    parameters, specs = {}, dict(task.quantizations)
    for path, tensor in given.items():
        if isinstance(tensor, QuantizationSpec):
            specs[path] = tensor
            continue
        wanted = task.opened.parameters.get(path)
        if wanted is None or tuple(wanted.shape) != tuple(tensor.shape):
            raise PluginError(
                f"{fault} gave {path} {tuple(tensor.shape)}, which is no parameter of the model"
            )
        parameters[path] = tensor
        if isinstance(tensor, QuantizedMatrix):
            specs[path] = tensor.quantization
    return parameters, specs
