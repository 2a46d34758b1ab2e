"""Conversion of a GGUF file's metadata to the config.json of its architecture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from zoo.architecture import Architecture
from zoo.checkpoint.gguf.header import Header, shown
from zoo.checkpoint.gguf.rope import NAMES as SCALING_NAMES
from zoo.checkpoint.gguf.rope import READ as SCALING
from zoo.checkpoint.gguf.rope import rope_scaling
from zoo.config import Origin
from zoo.deferred_warnings import warn
from zoo.errors import ConfigError
from zoo.gguf import GGUF, KEYS
from zoo.host.registry import Registry

# Keys of an architecture that are read below, or change nothing.
READ = ("attention.value_length", "rope.dimension_count", "tensor_data_layout", *SCALING)
# Keys with the only value that the zoo's recipes know.
ONLY = {"attention.causal": (True,), "expert_gating_func": (0, 1), "expert_weights_scale": (0.0, 1.0)}

OWN = "gguf."  # begins a key that only the architecture's own `config` reads

TOKENS = {
    "bos_token_id": "tokenizer.ggml.bos_token_id",
    "eos_token_id": "tokenizer.ggml.eos_token_id",
    "pad_token_id": "tokenizer.ggml.padding_token_id",
}


def architecture_of(header: Header, registry: Registry) -> Architecture:
    """The zoo's architecture for a file; ConfigError where there is none, or several fit equally well."""
    name, keys = _name(header), own_keys(header)
    serving = [
        a for a in registry.architectures.values() if a.gguf is not None and a.gguf.architecture == name
    ]
    if not serving:
        has = sorted({a.gguf.architecture for a in registry.architectures.values() if a.gguf is not None})
        absent = registry.unloaded_plugin(name) if isinstance(name, str) else None
        raise ConfigError(
            f"{header.path}: general.architecture {shown(name)} is of no architecture that the zoo reads "
            f"from GGUF; "
            + (f"it is named by the {absent.unloaded_label}" if absent else f"known: {', '.join(has)}")
        )
    marked = [a for a in serving if a.gguf is not None and a.gguf.when is not None and keys.get(a.gguf.when)]
    chosen = marked or [a for a in serving if a.gguf is not None and a.gguf.when is None]
    if len(chosen) != 1:
        names = ", ".join(a.name for a in chosen or serving)
        raise ConfigError(f"{header.path}: may be any of {names}; name one with `architecture`")
    return chosen[0]


def gguf_of(architecture: Architecture, header: Header) -> GGUF:
    """The architecture's record of GGUF files; ConfigError when it has none, or the file is of another architecture."""
    if architecture.gguf is None:
        raise ConfigError(f"{header.path}: {architecture.name} is not read from GGUF files")
    if architecture.gguf.architecture != _name(header):
        raise ConfigError(
            f"{header.path}: general.architecture {shown(_name(header))} is not that of {architecture.name}, "
            f"{architecture.gguf.architecture!r}"
        )
    return architecture.gguf


def own_keys(header: Header) -> dict[str, Any]:
    """The metadata of the file's own architecture, its name removed from each key."""
    prefix = _name(header) + "."
    return {
        key.removeprefix(prefix): value for key, value in header.metadata.items() if key.startswith(prefix)
    }


def config_of(header: Header, architecture: Architecture) -> dict[str, Any]:
    """The config.json that is equivalent to the metadata. ConfigError for a value that is not implemented."""
    described, keys = gguf_of(architecture, header), own_keys(header)
    names: dict[str, str | None] = {**KEYS, **described.keys}
    config: dict[str, Any] = {"model_type": next(iter(architecture.model_types), architecture.name)}
    ignored = []
    for key, value in keys.items():
        if key in names:
            name = names[key]
            if name is not None and not (
                key.startswith("expert_") and value == 0
            ):  # none at all, as many dense files say
                config[name] = _single(header, key, value)
        elif key in ONLY:
            if value not in ONLY[key]:
                raise ConfigError(f"{header.path}: {key} {shown(value)} is not implemented")
        elif key not in READ:
            ignored.append(key)
    if ignored:
        warn(f"{header.path.name}: metadata unknown to {architecture.name}, ignored: {_some(ignored)}")
    table = header.tensors.get("token_embd.weight")
    if table is not None:
        config["vocab_size"] = table.shape[0]
    config["tie_word_embeddings"] = "output.weight" not in header.tensors
    config |= {name: header.metadata[key] for name, key in TOKENS.items() if key in header.metadata}
    scaling = rope_scaling({key: decimal(value) for key, value in keys.items()}, str(header.path))
    if scaling:
        config["rope_scaling"] = scaling
    if names["attention.key_length"] == KEYS["attention.key_length"]:
        _check_heads(header, keys, config)
    config |= dict(described.config(config, header.tensors) if described.config else {})
    return {key: value for key, value in config.items() if not key.startswith(OWN)}


def origin_of(header: Header, described: GGUF) -> Origin:
    """The names of the file and of its metadata keys, which errors print in the place of config.json's."""
    prefix, names = _name(header), {**KEYS, **described.keys}
    keys: dict[str, str] = {}
    # Of several keys for one value the file's own comes first.
    for key, name in sorted(names.items(), key=lambda item: f"{prefix}.{item[0]}" not in header.metadata):
        if name is not None and not name.startswith(OWN):
            keys.setdefault(name, f"{prefix}.{key}")
    keys |= TOKENS | {name: f"{prefix}.{key}" for name, key in SCALING_NAMES.items()}
    keys["partial_rotary_factor"] = f"{prefix}.rope.dimension_count"
    if "token_embd.weight" in header.tensors:
        keys["vocab_size"] = "token_embd.weight"
    return Origin(str(header.path), keys)


def _some(names: list[str], most: int = 8) -> str:
    return ", ".join([*names[:most], *([f"and {len(names) - most} more"] if len(names) > most else [])])


def _name(header: Header) -> str:
    name = header.metadata.get("general.architecture")
    if not isinstance(name, str):
        raise ConfigError(f"{header.path}: general.architecture is missing")
    return name


def _single(header: Header, key: str, value: Any) -> Any:
    """A value that files may repeat for each layer; ConfigError where layers differ."""
    if isinstance(value, tuple):
        if not value or any(each != value[0] for each in value):
            raise ConfigError(f"{header.path}: {key} differs from layer to layer, which is not implemented")
        value = value[0]
    return decimal(value)


def decimal(value: Any) -> Any:
    """The shortest decimal number whose nearest float32 this is: 1e-05 and not 9.999999747378752e-06."""
    if not isinstance(value, float) or abs(value) > 1e38:
        return value
    narrow = np.float32(value)
    return float(str(narrow)) if float(narrow) == value else value


def _check_heads(header: Header, keys: Mapping[str, Any], config: dict[str, Any]) -> None:
    """Check that keys and values have one width per head, and add `partial_rotary_factor` where RoPE covers only part."""
    width, values = config.get("head_dim"), keys.get("attention.value_length")
    if width is not None and values not in (None, width):
        why = f"is not key_length, {shown(width)}, which is not implemented"
        raise ConfigError(f"{header.path}: attention.value_length {shown(values)} {why}")
    dim, heads = config.get("hidden_size"), config.get("num_attention_heads")
    if width is None and isinstance(dim, int) and isinstance(heads, int) and heads > 0:
        width = dim // heads
    turned = keys.get("rope.dimension_count", width)
    if turned != width and isinstance(turned, int) and isinstance(width, int) and width > 0:
        config["partial_rotary_factor"] = turned / width
