"""Conversion of a GGUF file's metadata to the config.json of its architecture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.architecture import Architecture
from zoo.checkpoint.gguf.header import Header, decimal, shown
from zoo.checkpoint.gguf.positions import NAMES, OFF, ONE, YARN, rope_scaling
from zoo.config import Origin
from zoo.errors import ConfigError, warn
from zoo.gguf import GGUF, KEYS
from zoo.host.registry import Registry

# Keys of an architecture that are read below, or change nothing.
READ = (
    "attention.value_length",
    "pooling_type",
    "rope.dimension_count",
    "tensor_data_layout",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.finetuned",
    "rope.scale_linear",
    *YARN,
    *ONE,
)

# Keys that change what is computed, with the values by which they do not. Families that compute it read them by `keys`.
ONLY = {
    "expert_gating_func": (0, 1),
    "expert_group_count": OFF,
    "expert_group_scale": OFF,
    "expert_group_used_count": OFF,
    "expert_weights_scale": OFF,
    "router_logit_softcapping": (0.0,),
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "attention.output_scale": OFF,
    "attention.scale": (0.0,),
    "attention.temperature_scale": (0.0,),
    "embedding_scale": OFF,
    "logit_scale": OFF,
    "residual_scale": OFF,
    "rope.scaling.alpha": OFF,
    "swin_norm": (False,),
}
# Zeros that stand for "none", with what config.json has for it.
ZEROS = {
    **dict.fromkeys(("attention.sliding_window", "attention.q_lora_rank"), None),
    **dict.fromkeys(("attn_logit_softcapping", "final_logit_softcapping"), None),
    **dict.fromkeys(("embedding_scale", "residual_scale", "logit_scale"), 1.0),
}
# Keys of layers with a window, which otherwise have what the other key says of all layers.
OF_WINDOWS = {
    "rope.freq_base_swa": "rope.freq_base",
    "rope.dimension_count_swa": "rope.dimension_count",
    "attention.key_length_swa": "attention.key_length",
    "attention.value_length_swa": "attention.value_length",
}

PATTERN = "attention.sliding_window_pattern"  # which layers have the window

# What else files hold than a model, by `general.type` or the architecture.
PROJECTOR = "the part of a model that reads images; name the file of its language model"
OTHER_FILES = {
    "adapter": "an adapter, which is not read from GGUF; `adapter` takes the folders of PEFT and mlx-lm",
    "imatrix": "an importance matrix for quantizing, and no model",
    **dict.fromkeys(("mmproj", "clip-vision", "clip"), PROJECTOR),
}
# Keys that Ollama's own converter writes. Its other keys have other meanings, which its program knows by the size.
OLLAMA = ("rope.global.freq_base", "rope.local.freq_base", "vision.block_count")

OWN = "gguf."  # begins a key that only the architecture's own `config` reads

TOKENS = {
    "bos_token_id": "tokenizer.ggml.bos_token_id",
    "eos_token_id": "tokenizer.ggml.eos_token_id",
    "pad_token_id": "tokenizer.ggml.padding_token_id",
}


def architecture_of(header: Header, registry: Registry) -> Architecture:
    """The zoo's architecture for a file; ConfigError where there is none, or several fit equally well."""
    name, keys = _name(header), own_keys(header)
    for kind in (header.metadata.get("general.type"), name):
        if kind in OTHER_FILES:
            raise ConfigError(f"{header.path}: {OTHER_FILES[kind]}")
    described = [(a, a.gguf) for a in registry.architectures.values() if a.gguf is not None]
    serving = [(architecture, gguf) for architecture, gguf in described if gguf.architecture == name]
    if not serving:
        absent = registry.unloaded_plugin(name)
        known = f"known: {', '.join(sorted({gguf.architecture for _, gguf in described}))}"
        raise ConfigError(
            f"{header.path}: general.architecture {shown(name)} is of no architecture that the zoo reads "
            f"from GGUF; {f'it is named by the {absent.unloaded_label}' if absent else known}"
        )
    if not header.tensors:
        raise ConfigError(f"{header.path}: a file without weights, as that of a vocabulary alone is")
    marked = [architecture for architecture, gguf in serving if gguf.when is not None and keys.get(gguf.when)]
    chosen = marked or [architecture for architecture, gguf in serving if gguf.when is None]
    if len(chosen) != 1:
        names = ", ".join(a.name for a in chosen or [architecture for architecture, _ in serving])
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
    own = {key: value for key, value in header.metadata.items() if key.startswith(prefix)}
    return {key.removeprefix(prefix): value for key, value in own.items()}


def config_of(header: Header, architecture: Architecture) -> dict[str, Any]:
    """The config.json that is equivalent to the metadata. ConfigError for a value that is not implemented."""
    described, keys = gguf_of(architecture, header), own_keys(header)
    names: dict[str, str | None] = {**KEYS, **described.keys}
    config: dict[str, Any] = {"model_type": next(iter(architecture.model_types), architecture.name)}
    if key := next((key for key in OLLAMA if key in keys), None):
        why = "is of Ollama's own conversion; use a file of llama.cpp's converter"
        raise ConfigError(f"{header.path}: {key} {why}")
    ignored = []
    for key, value in keys.items():
        if key in names:
            name = names[key]
            no_experts = key.startswith("expert_") and value == 0  # as many dense files say
            if name is not None and not no_experts:
                value = _single(header, key, value)
                config[name] = ZEROS[key] if value == 0 and key in ZEROS else value
        elif key == PATTERN:
            config["layer_types"] = layer_types(value, keys.get("block_count", 0))
        elif key in ONLY:
            if value not in ONLY[key]:
                raise ConfigError(f"{header.path}: {key} {shown(value)} is not implemented")
        elif key in OF_WINDOWS:
            if value != keys.get(OF_WINDOWS[key]):
                why = f"is not {OF_WINDOWS[key]}, which is not implemented"
                raise ConfigError(f"{header.path}: {key} {shown(value)} {why}")
        elif key not in READ:
            ignored.append(key)
    if ignored:
        more = [f"and {len(ignored) - 8} more"] if len(ignored) > 8 else []
        some = ", ".join([*ignored[:8], *more])
        warn(f"{header.path.name}: metadata unknown to {architecture.name}, ignored: {some}")
    table = header.tensors.get("token_embd.weight")
    if table is not None:
        config["vocab_size"] = table.shape[0]
    config["tie_word_embeddings"] = "output.weight" not in header.tensors
    config |= {name: header.metadata[key] for name, key in TOKENS.items() if key in header.metadata}
    scaling = rope_scaling({key: decimal(value) for key, value in keys.items()}, header)
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
    keys |= TOKENS | {name: f"{prefix}.{key}" for name, key in NAMES.items()}
    keys["partial_rotary_factor"] = f"{prefix}.rope.dimension_count"
    if "token_embd.weight" in header.tensors:
        keys["vocab_size"] = "token_embd.weight"
    return Origin(str(header.path), keys)


def _name(header: Header) -> str:
    name = header.metadata.get("general.architecture")
    if not isinstance(name, str):
        raise ConfigError(f"{header.path}: general.architecture is missing")
    return name


def _single(header: Header, key: str, value: object) -> Any:
    """A value that files may repeat for each layer; ConfigError where layers differ."""
    if isinstance(value, tuple):
        if not value or any(each != value[0] for each in value):
            raise ConfigError(f"{header.path}: {key} differs from layer to layer, which is not implemented")
        value = value[0]
    return decimal(value)


def layer_types(value: object, count: int) -> Any:
    """`layer_types` of which layers have a window: one truth a layer, or n where every n-th of the layers has none."""
    if isinstance(value, int) and value > 0:
        value = tuple((index + 1) % value != 0 for index in range(count))
    if not isinstance(value, tuple):
        return value
    return ["sliding_attention" if windowed else "full_attention" for windowed in value]


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
