"""Trainable adapters: mlx-lm's LoRA and DoRA layers in the place of a model's linear layers, and the files they are saved in.

Which layers take one is found by their class, and named by their address in the recipe. `zoo.load(adapter=…)` reads the
files, and so does mlx-lm where each adapted matrix is one of its own. Axes: E experts, I inputs, O outputs, R rank.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten

from zoo import runtime, weights
from zoo.architecture import Architecture
from zoo.blocks.feedforward import QuantizedStackedLinear, StackedLinear
from zoo.blocks.model import address_order
from zoo.checkpoint.adapter import CONFIG, KINDS, TENSORS, LowRankUpdate, join_changes
from zoo.checkpoint.parameters import renamed
from zoo.errors import CheckpointError, ZooError
from zoo.files.writing import write_json
from zoo.recipe import Model
from zoo.runtime.lazy_packages import import_lazily

import_lazily("mlx_lm", "mlx_lm.tuner")
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchLinear  # noqa: E402
from mlx_lm.tuner.dora import DoRAEmbedding, DoRALinear  # noqa: E402
from mlx_lm.tuner.lora import LoRAEmbedding, LoRALinear, LoRASwitchLinear  # noqa: E402

ALL = "all"  # the part that stands for every linear layer within the layers
TRAINED = ("lora_a", "lora_b", "m")  # the parameters of an adapter
PACKED = (nn.QuantizedLinear, nn.QuantizedEmbedding, QuantizedStackedLinear, QuantizedSwitchLinear)
EMBEDDINGS = (nn.Embedding, nn.QuantizedEmbedding)
STACKED = (StackedLinear, QuantizedStackedLinear)
SWITCHED = (SwitchLinear, QuantizedSwitchLinear)
LINEAR = (nn.Linear, nn.QuantizedLinear)
IN_LAYER = re.compile(r"(?P<side>(?:.*\.)?layers)\.(?P<index>\d+)\.(?P<part>.+)")


@dataclass(frozen=True)
class AdapterSettings:
    """What of a model is trained: a "lora" or "dora" of a rank beside its matrices, or the matrices themselves ("full").

    The low-rank product is multiplied by `scale` (alpha / rank in other programs), its input dropped out with the
    probability `dropout`. `parts` are addresses within a layer (`mixer.query`, `feedforward`), or of matrices outside the
    layers (`embedding.tokens`); `layers` counts the last layers that take part, None for all.
    """

    kind: str = "lora"
    rank: int = 8
    scale: float = 20.0
    dropout: float = 0.0
    parts: tuple[str, ...] = (ALL,)
    layers: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ZooError(f"`type` must be one of {', '.join(KINDS)}, got {self.kind}")
        if self.rank < 1:
            raise ZooError(f"`rank` must be at least 1, got {self.rank}")
        if not 0 < self.scale < 1e30:
            raise ZooError(f"`scale` must be positive, got {self.scale}")
        if not 0 <= self.dropout < 1:
            raise ZooError(f"`dropout` must be from 0 to below 1, got {self.dropout}")
        if self.layers is not None and self.layers < 1:
            raise ZooError(f"`layers` must be at least 1, got {self.layers}")
        if not self.parts:
            raise ZooError("`parts` must name at least one")


class StackedLoRA(LoRASwitchLinear):
    """LoRA of stacked matrices, as `StackedLinear` is called."""

    def __call__(
        self, x: mx.array, indices: mx.array, in_order: bool = False
    ) -> mx.array:  # (…, 1, I), (…) -> (…, 1, O)
        y = self.linear(x, indices, in_order)
        low = runtime.gather_matmul(self.dropout(x), self.lora_a.swapaxes(-1, -2), indices, in_order)
        change = runtime.gather_matmul(low, self.lora_b.swapaxes(-1, -2), indices, in_order)
        return y + (self.scale * change).astype(y.dtype)


def add_adapters(model: nn.Module, settings: AdapterSettings, seed: int = 0) -> list[str]:
    """Freeze the model but for what `settings` train, and give the addresses of the layers that take part.

    The change is nothing at first. ZooError names a part that no layer has, packed matrices that are to be trained
    themselves, and a layer that cannot hold such an adapter.
    """
    model.freeze()
    if settings.kind == "full":
        return _unfreeze(model, settings)
    make = _dora if settings.kind == "dora" else _lora
    layers: dict[str, nn.Module] = dict(model.named_modules())
    can = {path for path, layer in layers.items() if make(layer) is not None}
    chosen = _chosen(can, settings)
    mx.random.seed(seed)
    new = [(path, make(layers[path])(settings)) for path in chosen]  # type: ignore[misc]
    model.update_modules(tree_unflatten(new))
    return chosen


def _chosen(paths: set[str], settings: AdapterSettings) -> list[str]:
    """Those of the addresses that the settings name, in the model's order."""
    places = {path: match for path in sorted(paths, key=address_order) if (match := IN_LAYER.fullmatch(path))}
    counts: dict[str, int] = {}
    for match in places.values():
        counts[match["side"]] = max(counts.get(match["side"], 0), int(match["index"]) + 1)
    chosen: list[str] = []
    for part in settings.parts:
        inside = [
            path
            for path, match in places.items()
            if part == ALL or f"{match['part']}.".startswith(f"{part}.") or f"{path}.".startswith(f"{part}.")
            if settings.layers is None or int(match["index"]) >= counts[match["side"]] - settings.layers
        ]
        outside = [path for path in paths - places.keys() if f"{path}.".startswith(f"{part}.")]
        if not inside and not outside:
            parts = {match["part"] for match in places.values()} | (paths - places.keys())
            raise ZooError(
                f"`parts`: no layer {part!r} takes an adapter; those that do: {', '.join(sorted(parts))}"
            )
        chosen += inside + outside
    return sorted(set(chosen), key=address_order)


def _unfreeze(model: nn.Module, settings: AdapterSettings) -> list[str]:
    """Make the modules trainable that the settings name, everything for `ALL` of all layers.

    Their float16 becomes float32: squares of gradients, which AdamW divides by, are 0 in float16.
    """
    layers: dict[str, nn.Module] = dict(model.named_modules())
    whole = settings.parts == (ALL,) and settings.layers is None
    holders = {path for path, layer in layers.items() if any(isinstance(v, mx.array) for v in layer.values())}
    chosen = sorted(holders, key=address_order) if whole else _chosen(holders, settings)
    for path in chosen:
        if isinstance(layers[path], PACKED):
            raise ZooError(
                f"`type` full: {path} holds packed numbers, which are not trained; `type` lora trains an adapter beside "
                "them, `zoo convert -q none` unpacks them"
            )
        halves = {
            name: array.astype(mx.float32)
            for name, array in layers[path].items()
            if isinstance(array, mx.array) and array.dtype == mx.float16
        }
        layers[path].update(halves)
        layers[path].unfreeze(recurse=False)
    return chosen


Make = Callable[[AdapterSettings], nn.Module]


def _lora(layer: nn.Module) -> Make | None:
    """The function that makes a layer's LoRA; None for a layer that has none."""

    def of(kind: type[nn.Module]) -> Make:
        return lambda s: kind.from_base(layer, r=s.rank, dropout=s.dropout, scale=s.scale)

    if hasattr(layer, "to_lora"):  # mlx-lm's way for layers with an adapter of their own
        return lambda s: layer.to_lora(r=s.rank, dropout=s.dropout, scale=s.scale)  # type: ignore[no-any-return]
    if isinstance(layer, STACKED):
        return lambda s: _stacked(layer, s)
    for kinds, kind in ((LINEAR, LoRALinear), (SWITCHED, LoRASwitchLinear), (EMBEDDINGS, LoRAEmbedding)):
        if isinstance(layer, kinds):
            return of(kind)
    return None


def _stacked(layer: nn.Module, settings: AdapterSettings) -> nn.Module:
    experts, outputs, inputs = layer.weight.shape
    if "scales" in layer:
        inputs = layer.scales.shape[-1] * layer.group_size
    adapter = StackedLoRA(inputs, outputs, experts, settings.rank, settings.dropout, settings.scale)
    adapter.linear = layer
    return adapter


def _dora(layer: nn.Module) -> Make | None:
    """The function that makes a layer's DoRA; None for a layer that has none."""
    if isinstance(layer, nn.Embedding):
        return lambda s: DoRAEmbedding.from_base(layer, r=s.rank, dropout=s.dropout, scale=s.scale)  # type: ignore[no-any-return]
    if not isinstance(layer, LINEAR) or "global_scale" in layer or "permutation" in layer:
        return None

    def make(settings: AdapterSettings) -> nn.Module:
        outputs, inputs = layer.weight.shape
        if "scales" in layer:
            inputs = layer.scales.shape[-1] * layer.group_size
        adapter = DoRALinear(inputs, outputs, settings.rank, settings.dropout, settings.scale)
        adapter.set_linear(layer)
        return adapter  # type: ignore[no-any-return]

    return make


def adapter_files(
    model: nn.Module,
    settings: AdapterSettings,
    chosen: list[str],
    architecture: Architecture,
    recipe: Model,
) -> tuple[dict[str, mx.array], dict[str, Any]]:
    """The tensors of the model's adapter by the names that mlx-lm gives them, and its adapter_config.json.

    Where a matrix is a part of one of the checkpoint's, all have the zoo's addresses, which `zoo.load` reads, too.
    """
    trained = dict(tree_flatten(model.trainable_parameters()))
    config: dict[str, Any] = {"fine_tune_type": settings.kind, "num_layers": -1}
    if settings.kind == "full":
        return _full_tensors(trained, architecture, recipe), config
    names = _names(chosen, architecture, recipe)
    tensors = {}
    for path, array in trained.items():
        owner, _, name = path.rpartition(".")
        tensors[f"{names[owner]}.{name}"] = array
    places = (IN_LAYER.fullmatch(name) for name in names.values())
    keys = sorted(
        {match["part"] if match else name for match, name in zip(places, names.values(), strict=True)}
    )
    config["num_layers"] = settings.layers or -1
    config["lora_parameters"] = {
        "rank": settings.rank,
        "scale": settings.scale,
        "dropout": settings.dropout,
        "keys": keys,
    }
    return tensors, config


def _full_tensors(
    trained: Mapping[str, Any], architecture: Architecture, recipe: Model
) -> dict[str, mx.array]:
    try:
        return renamed(trained, architecture, recipe, "mlx")
    except (CheckpointError, KeyError):  # only some of the parts of a matrix
        return dict(trained)


def _names(chosen: list[str], architecture: Architecture, recipe: Model) -> dict[str, str]:
    """The names of the adapted layers in MLX checkpoints by their addresses, or the addresses themselves."""
    names = {}
    for path in chosen:
        probe = LowRankUpdate(path, mx.zeros((1, 1)), mx.zeros((1, 1)))
        try:
            tensors, left = weights.invert(
                architecture.layouts["mlx"], {f"{path}.weight": probe}, recipe, join_changes
            )
        except (CheckpointError, KeyError, ValueError):  # one of the parts of a matrix
            return {path: path for path in chosen}
        if left or len(tensors) != 1:
            return {path: path for path in chosen}
        names[path] = next(iter(tensors)).removesuffix(".weight")
    return names


def write_adapter(folder: Path, tensors: Mapping[str, mx.array], config: Mapping[str, Any]) -> None:
    """Write an adapter's two files into a folder. OSError where they cannot be written."""
    try:
        mx.save_safetensors(str(folder / TENSORS), dict(tensors), metadata={"format": "mlx"})
    except RuntimeError as error:  # MLX's for a full disk
        raise OSError(str(error)) from error
    write_json(folder / CONFIG, config)
