"""The text model of a checkpoint that takes images or sound too, as a folder of the text model alone would hold it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from zoo.checkpoint.quantized_tensors import SETTINGS_KEYS
from zoo.checkpoint.safetensors import Tensors
from zoo.config import harmless_keys
from zoo.host.registry import Registry

# Keys that count for the text although they stand beside `text_config`.
SHARED_KEYS = frozenset((*SETTINGS_KEYS, "tie_word_embeddings"))
# Encoders of images and sound, and what leads from them to the text model.
TOWERS = re.compile(
    r"(model\.)?(visual|vision_tower|vision_model|vision_embed_tokens|audio_tower|embed_vision|embed_audio|"
    r"multi_modal_projector|mm_projector|vision_embedder)\..*"
)
_TEXT = re.compile(r"(?:model\.)?language_model\.(?:model\.)?")


def text_config(config: dict[str, Any], registry: Registry) -> dict[str, Any]:
    """The config of the text model in a config whose `model_type` stands in the `text_of` of an architecture; others as they are.

    `text_config` counts, and beside it the keys that are not about another modality.
    """
    text, model_type = config.get("text_config"), config.get("model_type")
    if not isinstance(text, Mapping) or not isinstance(model_type, str):
        return config
    claims = [architecture for _, architecture in registry.model_types.claims(model_type)]
    named = [a for a in claims if text.get("model_type") in a.model_types] or claims
    if not named or any(model_type not in architecture.text_of for architecture in named):
        return config
    known = harmless_keys() | SHARED_KEYS
    outer = {key: value for key, value in config.items() if key in known and key != "architectures"}
    inner = {**text, "model_type": named[0].model_types[0]}
    whole = outer | {key: value for key, value in inner.items() if value is not None or key not in outer}
    return whole | {key: _rename(whole[key]) for key in SETTINGS_KEYS if type(whole.get(key)) is dict}


def as_text_config(config: Mapping[str, Any], model_type: str) -> dict[str, Any]:
    """The inverse of `text_config`: the config as the `text_config` of one of `model_type`."""
    known = harmless_keys() | SHARED_KEYS
    inner = {key: value for key, value in config.items() if key not in SETTINGS_KEYS}
    return {key: value for key, value in config.items() if key in known} | {
        "model_type": model_type,
        "text_config": inner,
    }


def text_tensors(tensors: Tensors) -> Tensors:
    """The text model's tensors by the names that they have in a folder of their own."""
    arrays = {name: a for name, a in tensors.arrays.items() if not TOWERS.fullmatch(name)}
    return replace(
        tensors,
        arrays={text_name(name): array for name, array in arrays.items()},
        dtypes={text_name(name): tensors.dtypes[name] for name in arrays if name in tensors.dtypes},
    )


def text_name(name: str) -> str:
    """ "model.language_model.norm.weight" to "model.norm.weight"; a name outside the language model as it is."""
    match = _TEXT.match(name)
    if match is None:
        return name
    rest = name[match.end() :]
    return rest if rest.startswith("lm_head.") else f"model.{rest}"


def _rename(value: Any) -> Any:
    """Settings of quantization, in which layers are named as keys and in lists."""
    if isinstance(value, dict):
        return {_rename(key): _rename(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rename(item) for item in value]
    return text_name(value) if isinstance(value, str) else value
