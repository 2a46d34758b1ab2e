"""Conversion of a GGUF file's metadata to the config.json of its architecture, the scaling of rotary positions included."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from zoo.architecture import Architecture
from zoo.checkpoint.gguf.header import Header, shown
from zoo.config import Origin
from zoo.errors import ConfigError, warn
from zoo.gguf import GGUF, KEYS
from zoo.host.registry import Registry

YARN = {
    "rope.scaling.original_context_length": "original_max_position_embeddings",
    "rope.scaling.yarn_beta_fast": "beta_fast",
    "rope.scaling.yarn_beta_slow": "beta_slow",
    "rope.scaling.yarn_attn_factor": "attention_factor",
    "rope.scaling.yarn_log_multiplier": "mscale_all_dim",
}
# The keys of `rope_scaling`, dotted, to those they are read from.
NAMES = {
    "rope_scaling.rope_type": "rope.scaling.type",
    "rope_scaling.factor": "rope.scaling.factor",
    **{f"rope_scaling.{name}": key for key, name in YARN.items()},
}
ONE = ("rope.scaling.yarn_ext_factor", "rope.scaling.attn_factor")
OFF = (0.0, 1.0)  # values by which most factors change nothing
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

# LLaMA 3's own RoPE scaling: from the factors that a file holds only their ratios follow.
LOW, HIGH, CONTEXT = 1.0, 4.0, 8192
CLOSE = 1e-5  # of a factor: they are float32


def rope_scaling(keys: Mapping[str, Any], where: str) -> dict[str, Any] | None:
    """The scaling that the keys `rope.scaling.…` name, None for none; `where` begins an error.

    ConfigError for a type that transformers calls otherwise or the zoo lacks.
    """
    factor = keys.get("rope.scaling.factor", keys.get("rope.scale_linear"))
    kind = keys.get("rope.scaling.type", "none" if factor is None else "linear")  # as llama.cpp takes it
    if kind not in ("none", "linear", "yarn"):
        raise ConfigError(
            f"{where}: rope.scaling.type {shown(kind)} is not implemented; known: none, linear, yarn"
        )
    # llama.cpp multiplies rotations by these factors whatever the type is.
    scales, off = (ONE, (1.0,)) if kind == "yarn" else ((*ONE, "rope.scaling.yarn_attn_factor"), OFF)
    for key in scales:
        if keys.get(key, 1.0) not in off:
            raise ConfigError(f"{where}: {key} {shown(keys[key])} is not implemented")
    if kind == "none" or (kind == "linear" and factor in (None, 0, 1)):
        return None
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if not factor:
        raise ConfigError(f"{where}: rope.scaling.factor is missing")
    settings = {name: keys[key] for key, name in YARN.items() if keys.get(key)}
    if "mscale_all_dim" in settings:
        settings["mscale"] = 1.0  # which llama.cpp takes for granted
    return {"rope_type": "yarn", "factor": factor, **settings}


def llama3_scaling(factors: Sequence[float], theta: float, where: str) -> dict[str, Any] | None:
    """LLaMA 3's scaling from what it divides each frequency by, which is all that a file keeps of it.

    None where the factors are all one. ConfigError when LLaMA 3's rule (see `Llama3Scaling`) makes no such factors.
    """
    if all(factor == 1 for factor in factors):
        return None
    if all(1 <= factor < math.inf for factor in factors) and 1 < theta < math.inf:
        turns = [theta ** (-k / len(factors)) / (2 * math.pi) for k in range(len(factors))]  # a position
        for low, high, context in (*_fitted(factors, turns), (LOW, HIGH, CONTEXT)):
            made = [_factor(max(factors), (context * turn - low) / (high - low)) for turn in turns]
            if all(math.isclose(*pair, rel_tol=CLOSE) for pair in zip(factors, made, strict=True)):
                return {
                    "rope_type": "llama3",
                    "factor": max(factors),
                    "low_freq_factor": low,
                    "high_freq_factor": high,
                    "original_max_position_embeddings": context,
                }
    raise ConfigError(
        f"{where}: rope_freqs.weight holds factors that are not LLaMA 3's, which are not implemented"
    )


def _factor(most: float, kept: float) -> float:
    """The divisor of a frequency of which the share `kept` stays as it is."""
    kept = min(max(kept, 0.0), 1.0)
    return 1 / ((1 - kept) / most + kept)


def _fitted(factors: Sequence[float], turns: Sequence[float]) -> list[tuple[float, float, int]]:
    """The rule through two factors between the extremes: its share is a line over the turns a position makes."""
    most = max(factors)
    between = [index for index, factor in enumerate(factors) if 1 + CLOSE < factor < most * (1 - CLOSE)]
    if len(between) < 2:
        return []
    first, last = between[0], between[-1]
    kept = [(1 / factors[index] - 1 / most) / (1 - 1 / most) for index in (first, last)]
    slope = (kept[0] - kept[1]) / (turns[first] - turns[last])
    least = slope * turns[last] - kept[1]
    # The share is (context · turns − low) / (high − low), with low set to one.
    if not slope > 0 or not 0.001 < least < 1000 or slope / least > 2**40:
        return []
    return [(LOW, round(LOW + 1 / least, 3), max(1, round(slope / least)))]


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
# Keys of layers with a window, which otherwise have what the other key says of all layers.
OF_WINDOWS = {
    "rope.freq_base_swa": "rope.freq_base",
    "rope.dimension_count_swa": "rope.dimension_count",
    "attention.key_length_swa": "attention.key_length",
    "attention.value_length_swa": "attention.value_length",
}

PATTERN = "attention.sliding_window_pattern"  # which layers have the window

OWN = "gguf."  # begins a key that only the architecture's own `config` reads

TOKENS = {
    "bos_token_id": "tokenizer.ggml.bos_token_id",
    "eos_token_id": "tokenizer.ggml.eos_token_id",
    "pad_token_id": "tokenizer.ggml.padding_token_id",
}


def architecture_of(header: Header, registry: Registry) -> Architecture:
    """The zoo's architecture for a file; ConfigError where there is none, or several fit equally well."""
    name, keys = _name(header), own_keys(header)
    described = [(a, a.gguf) for a in registry.architectures.values() if a.gguf is not None]
    serving = [(architecture, gguf) for architecture, gguf in described if gguf.architecture == name]
    if not serving:
        absent = registry.unloaded_plugin(name)
        known = f"known: {', '.join(sorted({gguf.architecture for _, gguf in described}))}"
        raise ConfigError(
            f"{header.path}: general.architecture {shown(name)} is of no architecture that the zoo reads "
            f"from GGUF; {f'it is named by the {absent.unloaded_label}' if absent else known}"
        )
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
    ignored = []
    for key, value in keys.items():
        if key in names:
            name = names[key]
            no_experts = key.startswith("expert_") and value == 0  # as many dense files say
            if name is not None and not no_experts:
                config[name] = _single(header, key, value)
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


def decimal(value: object) -> Any:
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
