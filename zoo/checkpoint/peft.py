"""Adapters as PEFT saves them: LoRA, with rank-stabilised scales (rsLoRA) or row lengths (DoRA) too.

A matrix W becomes W + s B A, with s = alpha / R, for rsLoRA alpha / √R (Kalajdzievski, 2023, arXiv:2312.03732). The names
are those of transformers' modules; B A is (O, I), whichever way W is stored. Axes: O outputs, I inputs, R rank.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from zoo.config import Config
from zoo.errors import CheckpointError

TENSORS = "adapter_model.safetensors"
PREFIX = "base_model.model."  # PEFT's wrappers around the model
# Settings under which the change is not s B A, or the model that it belongs to is not the one that it was begun from.
OTHERS = (
    *("layer_replication", "alora_invocation_tokens", "arrow_config", "kasa_config", "monteclora_config"),
    *("target_parameters", "use_bdlora", "use_qalora", "lora_bias"),
)
INITS = ("pissa", "corda", "olora", "loftq", "lora_ga", "mica")  # which change the model's own weights
LITERAL = re.compile(r"\^?[\w.]+\$?")


def peft_tensors(tensors: Mapping[str, Any], settings: Config) -> dict[str, Any]:
    """The tensors of a PEFT adapter by the names, and in the orientations, that mlx-lm's have, with a scale of 1.

    `settings` are its adapter_config.json. ConfigError names a setting, CheckpointError a tensor, that is not implemented.
    """
    settings.choice("peft_type", ("LORA",))
    for key in OTHERS:
        settings.refuse(key)
    if str(settings.get("init_lora_weights")).lower().startswith(INITS):
        raise settings.error("init_lora_weights", "changes the model's own weights, which is not implemented")
    power = 0.5 if settings.flag("use_rslora", False) else 1.0
    found: dict[str, Any] = {}
    for name, tensor in tensors.items():
        module, _, part = name.removeprefix(PREFIX).rpartition(".lora_")
        if part in ("A.weight", "B.weight") and tensor.ndim != 2:
            raise CheckpointError(f"{name}: an adapter of shape {tuple(tensor.shape)} is not implemented")
        if part == "A.weight":
            found[f"{module}.lora_a"] = tensor.T  # (R, I) -> (I, R)
        elif part == "B.weight":
            found[f"{module}.lora_b"] = _alpha(module, settings) / tensor.shape[1] ** power * tensor.T
        elif part in ("magnitude_vector", "magnitude_vector.weight"):
            found[f"{module}.m"] = tensor
        else:  # a whole parameter that was trained, too: a bias, a head
            found[name.removeprefix(PREFIX)] = tensor
    return found


def _alpha(module: str, settings: Config) -> float:
    """The alpha of a module: of the first pattern that its name, or the end of it, is; else the one of all."""
    patterns = settings.nested("alpha_pattern") or Config({})
    for pattern in patterns:
        if not LITERAL.fullmatch(pattern):
            raise settings.error("alpha_pattern", f"{pattern!r} is no plain name, which is not implemented")
        name = pattern.strip("^$")
        if module == name or (module.endswith(f".{name}") and not pattern.startswith("^")):
            return patterns.number(pattern)  # type: ignore[no-any-return]
    return settings.number("lora_alpha")  # type: ignore[no-any-return]
