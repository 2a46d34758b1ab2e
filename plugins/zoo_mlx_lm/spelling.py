"""The older names of a config's keys, which mlx-lm's classes take, from those that transformers 5 writes. Imports no mlx.

transformers 5 has `rope_parameters` in place of `rope_theta`, `rope_scaling` and `partial_rotary_factor`, and one name for what
families used to call differently.
"""

from typing import Any

from zoo.errors import ConfigError

# The keys that say the same as an older one, of which the first that a config has counts.
SAME = {
    "num_layers": ("num_hidden_layers",),
    "num_experts": ("num_local_experts", "n_routed_experts"),
    "layer_norm_epsilon": ("layer_norm_eps", "rms_norm_eps"),
    "rotary_emb_base": ("rope_theta",),
    "rotary_pct": ("partial_rotary_factor",),
}
# The keys that an older one is read from.
SOURCES = SAME | {"is_moe_layer": ("mlp_layer_types",)}
ROTATED = ("rope_theta", "partial_rotary_factor")


def older_keys(values, fields, where=""):
    """What a config says under newer names, by the older names among `fields` that the config lacks.

    `values` is the config, or a text_config within it, whose name and a dot are `where`. ConfigError for positions that are scaled where no field
    takes a scaling. Keys of `rope_parameters` that no field takes are left out.
    """
    older: dict[str, Any] = {}
    rope = values.get("rope_parameters")
    if isinstance(rope, dict) and "rope_parameters" not in fields and not _by_layer_type(rope):
        kind = rope.get("rope_type", rope.get("type", "default"))
        older |= {key: rope[key] for key in ROTATED if key in rope}
        if kind != "default" and "rope_scaling" not in fields and "rope_scaling" not in values:
            raise ConfigError(
                f"config.json: {where}rope_parameters.rope_type {kind!r} is not implemented by mlx-lm for this architecture"
            )
        scaling = {key: value for key, value in rope.items() if key not in ROTATED}
        older["rope_scaling"] = None if kind == "default" else scaling | {"type": kind, "rope_type": kind}
    known = older | dict(values)
    for key, names in SAME.items():
        older[key] = next((known[name] for name in names if known.get(name) is not None), None)
    width, heads = values.get("hidden_size"), values.get("num_attention_heads")
    if type(width) is int and type(heads) is int and heads > 0 and width % heads == 0:
        older["head_dim"] = width // heads
    kinds = values.get("mlp_layer_types")
    if isinstance(kinds, list):
        older["is_moe_layer"] = [kind == "sparse" for kind in kinds]
    return {
        key: value
        for key, value in older.items()
        if key in fields and key not in values and (value is not None or key == "rope_scaling")
    }


def is_translated(rope, fields):
    """Whether fields take all that a config's `rope_parameters` say."""
    names = {key: (key, *(older for older, newer in SAME.items() if key in newer)) for key in ROTATED}
    taken = (not set(names[key]).isdisjoint(fields) for key in ROTATED if key in (rope or ()))
    return isinstance(rope, dict) and not _by_layer_type(rope) and all(taken)


def _by_layer_type(rope):
    return bool(rope) and all(isinstance(value, dict) for value in rope.values())
