"""Adapters as mlx-lm and PEFT train them: LoRA and DoRA beside the matrices, or whole new matrices.

A low-rank change passes through the weight rules under the name of the matrix it belongs to, as a packed matrix does.

Axes: … stacked matrices, O outputs, I inputs, R rank.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_unflatten

from zoo import weights
from zoo.blocks.adapted import AdapterChoice, SharedLayer, adapted
from zoo.checkpoint.finite import evaluate
from zoo.checkpoint.open import Opened
from zoo.checkpoint.peft import TENSORS as PEFT_TENSORS
from zoo.checkpoint.peft import peft_tensors
from zoo.checkpoint.quantized_matrix import QuantizedMatrix, join, quantize_matrix
from zoo.checkpoint.safetensors import load_file
from zoo.config import Config, Origin
from zoo.errors import CheckpointError, ConfigError, SourceError
from zoo.files.reading import file_in_folder, read_object

CONFIG, TENSORS = "adapter_config.json", "adapters.safetensors"
KINDS = ("lora", "dora", "full")
MOST_SCALE = 1e30


@dataclass(frozen=True)
class LowRankUpdate:
    """The low-rank update B A of a matrix (…, O, I), `b` (…, O, R) and `a` (…, R, I) (Hu et al., 2021, section 4.1).

    With `magnitude` (O,) the rows of the sum are then given these lengths (DoRA: Liu et al., 2024, equation 5).
    """

    name: str
    b: mx.array
    a: mx.array
    magnitude: mx.array | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the matrix that is changed."""
        return (*self.b.shape[:-1], self.a.shape[-1])

    @property
    def T(self) -> LowRankUpdate:
        """The same: a linear layer's update is (O, I) even where a checkpoint stores the matrix (in, out)."""
        return self

    def reshape(self, *shape: int) -> LowRankUpdate:
        """The same with its outputs divided among a new axis, or joined with one; inputs stay whole."""
        if self.a.ndim != 2 or shape[-1] != self.a.shape[-1]:
            raise CheckpointError(f"{self.name}: its shape {shape} in this model is not implemented")
        magnitude = None if self.magnitude is None else self.magnitude.reshape(*shape[:-1])
        return replace(self, b=self.b.reshape(*shape[:-1], self.b.shape[-1]), magnitude=magnitude)

    def __getitem__(self, index: object) -> LowRankUpdate:
        """The change of a slice of the outputs, as rules split a fused matrix."""
        steps = index if isinstance(index, tuple) else (index,)
        sliced = all(isinstance(step, slice) for step in steps) and len(steps) < self.b.ndim
        if self.a.ndim != 2 or not sliced:
            raise CheckpointError(f"{self.name}: its part {index} in this model is not implemented")
        magnitude = None if self.magnitude is None else self.magnitude[steps]
        return replace(self, b=self.b[steps], magnitude=magnitude)

    def apply(self, matrix: mx.array) -> mx.array:
        """The changed matrix, computed in float32, in the type of the one given."""
        changed = matrix.astype(mx.float32) + self.b.astype(mx.float32) @ self.a.astype(mx.float32)
        if self.magnitude is not None:
            changed = changed * self.growth(changed)[..., None]
        return changed.astype(matrix.dtype)

    def growth(self, changed: mx.array) -> mx.array:
        """The factors (O,) that give the rows of a changed matrix (O, I) the lengths in `magnitude`."""
        assert self.magnitude is not None
        return self.magnitude.astype(mx.float32) / mx.linalg.norm(changed.astype(mx.float32), axis=-1)


def is_low_rank(folder: Path) -> bool:
    """Whether an adapter folder holds changes of low rank, which leave the model's weights as they are. ConfigError as below."""
    settings, _ = _settings_of(folder)
    if "peft_type" in settings:
        return not settings.get("modules_to_save") and settings.get("bias", "none") == "none"
    return settings.choice("fine_tune_type", KINDS, "lora") != "full"  # type: ignore[no-any-return]


def _settings_of(folder: Path) -> tuple[Config, Path]:
    """The settings of an adapter folder and the file of its tensors; SourceError where it is none."""
    if file_in_folder(folder, CONFIG) is None:
        raise SourceError(f"{folder}: no {CONFIG} with {TENSORS}, so no adapter")
    settings = Config(read_object(folder, CONFIG, ConfigError), origin=Origin(str(folder / CONFIG)))
    file = folder / (PEFT_TENSORS if "peft_type" in settings else TENSORS)
    if file_in_folder(folder, file.name) is None:
        raise SourceError(f"{folder}: no {CONFIG} with {file.name}, so no adapter")
    return settings, file


def open_adapter(folder: str | Path, opened: Opened) -> dict[str, Any]:
    """The changes of an adapter folder to an opened model, by parameter path: a `LowRankUpdate`, or the new parameter.

    Its tensors have mlx-lm's names, or, when mlx-lm trained the zoo's own model, the paths of that; or PEFT's names.
    A `ZooError` when there is no adapter, its kind is unknown, or it was made for another model.
    """
    if not isinstance(folder, str | Path):
        raise SourceError(f"`adapter` must be a path, got {folder!r:.60}")
    folder = Path(folder).expanduser()
    settings, file = _settings_of(folder)
    peft = "peft_type" in settings
    tensors = load_file(file).arrays
    for name, tensor in sorted(tensors.items()):
        if not mx.issubdtype(tensor.dtype, mx.floating) or tensor.size == 0:
            what = f"of shape {tuple(tensor.shape)}" if tensor.size == 0 else f"of {tensor.dtype}"
            raise CheckpointError(f"{file}: {name} {what}, where floats belong")
    if peft:
        tensors = peft_tensors(tensors, settings)
        tensors = changes(tensors, 1.0, owners(opened, tensors, "hf"))
    elif settings.choice("fine_tune_type", KINDS, "lora") != "full":
        lora = settings.nested("lora_parameters")
        if lora is None:
            raise ConfigError(f"{settings.origin.name}: lora_parameters.scale is missing")
        scale = lora.number("scale", least=-MOST_SCALE, most=MOST_SCALE)
        tensors = changes(tensors, scale, owners(opened, tensors, "mlx"))
    own = {path: change for path, change in tensors.items() if path in opened.parameters}
    others = {name: change for name, change in tensors.items() if name not in own}
    rules = opened.checkpoint.architecture.layouts["hf" if peft else "mlx"]
    named, left = weights.apply(rules, others, opened.recipe, join_changes)
    found = {**named, **own}
    unknown = [*left, *(path for path in found if path not in opened.parameters)]
    if unknown:
        raise CheckpointError(f"{file}: {min(unknown)} belongs to nothing in this model")
    for path, change in found.items():
        wanted, shape = tuple(opened.parameters[path].shape), tuple(change.shape)
        if shape != wanted:
            raise CheckpointError(f"{file}: for {path} expected {wanted}, found {shape}")
    broken = evaluate(load_file(file).arrays)  # small, and only now known to belong to this model
    if broken is not None:
        raise CheckpointError(f"{file}: {broken} holds NaN or infinity")
    return found


def owners(opened: Opened, tensors: Mapping[str, Any], layout: str) -> dict[str, Any]:
    """The layer that each adapted matrix belongs to, found by its path or by a layout's weight rules; None for none."""
    layers: dict[str, Any] = dict(opened.model.named_modules())
    rules = opened.checkpoint.architecture.layouts[layout]
    found = {}
    for name in tensors:
        prefix = name.rpartition(".")[0]
        probe = {f"{prefix}.weight": mx.zeros((0, 0))}
        paths = [prefix] if prefix in layers else weights.apply(rules, probe, opened.recipe, join_changes)[0]
        found[prefix] = next((layers.get(path.removesuffix(".weight")) for path in paths), None)
    return found


def changes(tensors: Mapping[str, Any], scale: float, layers: Mapping[str, Any]) -> dict[str, Any]:
    """The changes by the name of their matrix; tensors that belong to none are returned unchanged."""
    found: dict[str, Any] = dict(tensors)
    for name in [name for name in tensors if name.endswith(".lora_a")]:
        prefix = name.removesuffix(".lora_a")
        a, b = found.pop(name), found.pop(f"{prefix}.lora_b", None)
        magnitude = found.pop(f"{prefix}.m", None)
        if b is None:
            raise CheckpointError(f"{name}: has no {prefix}.lora_b")
        if a.ndim == b.ndim == 2 and isinstance(layers[prefix], nn.Embedding):
            b, a = a, b  # (V, R), (R, D): what multiplies a token's row
        elif a.ndim == b.ndim == 2:
            b, a = b.T, a.T  # stored (I, R), (R, O)
        elif b.ndim == 3 and a.shape[0] % b.shape[0] == 0:
            a = a.reshape(b.shape[0], -1, a.shape[-1])  # (E, R, I), of older ones (E·R, I)
        if a.ndim not in (2, 3) or a.ndim != b.ndim or a.shape[-2] != b.shape[-1]:
            raise CheckpointError(f"{name}: {tuple(a.shape)} and {tuple(b.shape)} are of no low-rank product")
        rank, shape = a.shape[-2], (b.shape[-2], a.shape[-1])
        if rank > max(shape):
            raise CheckpointError(f"{name}: rank {rank} is more than a matrix of shape {shape} can have")
        if magnitude is not None and tuple(magnitude.shape) != (b.shape[-2],):
            raise CheckpointError(f"{prefix}.m: {tuple(magnitude.shape)} is no length a row of {b.shape[-2]}")
        found[f"{prefix}.weight"] = LowRankUpdate(name, scale * b, a, magnitude)
    return found


def join_changes(parts: Sequence[Any], axis: int) -> Any:
    """Whole tensors joined along an axis; CheckpointError for several changes of low rank, which do not join to one."""
    if len(parts) == 1:
        return parts[0]
    if not any(isinstance(part, LowRankUpdate) for part in parts):
        return join(parts, axis)
    names = ", ".join(getattr(part, "name", "a tensor") for part in parts[:2])
    raise CheckpointError(f"{names}: adapters of matrices that are one in this model are not implemented")


def fuse(parameters: MutableMapping[str, Any], adapter: Mapping[str, Any]) -> None:
    """Merge the changes into the parameters, unevaluated; packed matrices are packed again, which rounds."""
    for path, change in adapter.items():
        old = parameters[path]
        if not isinstance(change, LowRankUpdate):
            parameters[path] = change
        elif isinstance(old, QuantizedMatrix):
            parameters[path] = quantize_matrix(path, change.apply(old.numbers()), old.quantization)
        else:
            parameters[path] = change.apply(old)


def fuse_plain(parameters: MutableMapping[str, Any], adapter: Mapping[str, Any]) -> dict[str, LowRankUpdate]:
    """Merge the changes of unpacked parameters, and return those of packed ones, which are applied at run time."""
    waits = {}
    for path, change in adapter.items():
        if isinstance(change, LowRankUpdate) and isinstance(parameters[path], QuantizedMatrix):
            waits[path] = change
        else:
            fuse(parameters, {path: change})
    return waits


def adapt(
    model: nn.Module,
    changes: Mapping[str, LowRankUpdate],
    parameters: Mapping[str, Any],
    dtype: mx.Dtype | None = None,
) -> None:
    """Replace layers of packed matrices by ones that add their changes to each product, cast to `dtype` if given."""
    layers: dict[str, Any] = dict(model.named_modules())
    new = []
    for path, change in changes.items():
        owner = path.removesuffix(".weight")
        new.append((owner, _adapted(layers[owner], change, parameters[path], dtype)))
    model.update_modules(tree_unflatten(new))


def _adapted(layer: nn.Module, change: LowRankUpdate, matrix: Any, dtype: mx.Dtype | None) -> nn.Module:
    """The layer with a change of its `matrix`, whose numbers are cast to `dtype` if given."""
    parts = [change.b, change.a]
    if change.magnitude is not None:
        numbers = matrix.numbers() if isinstance(matrix, QuantizedMatrix) else matrix
        parts.append(change.growth(numbers.astype(mx.float32) + change.b @ change.a))
    made = adapted(layer, *(part if dtype is None else part.astype(dtype) for part in parts))
    if made is None:
        raise CheckpointError(
            f"{change.name}: such an adapter of a {type(layer).__name__} is not implemented"
        )
    return made


def share(
    model: nn.Module,
    adapters: Mapping[str, Mapping[str, Any]],
    parameters: Mapping[str, Any],
    dtype: mx.Dtype | None = None,
) -> AdapterChoice:
    """Give the layers that the adapters change their forms with each, and return what chooses among them.

    CheckpointError for an adapter of whole matrices, which share nothing with the model.
    """
    choice = AdapterChoice(adapters)
    layers: dict[str, Any] = dict(model.named_modules())
    shared: dict[str, SharedLayer] = {}
    for name, changes in adapters.items():
        for path, change in changes.items():
            if not isinstance(change, LowRankUpdate):
                raise CheckpointError(
                    f"adapter {name}: {path} is new as a whole; load it by itself, as `adapter`"
                )
            owner = path.removesuffix(".weight")
            layer = shared.setdefault(owner, SharedLayer(layers[owner], choice))
            layer.add(name, _adapted(layers[owner], change, parameters[path], dtype))
    model.update_modules(tree_unflatten(list(shared.items())))
    mx.eval([form.parameters() for layer in shared.values() for form in layer.forms()])
    return choice
