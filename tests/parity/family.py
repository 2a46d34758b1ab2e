"""A family as the comparisons see it: transformers' classes, a small config and its variants, how a config was spelled."""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import transformers as tf
from safetensors.torch import load_file, save_file

from .support import reference, spelled_as_4

VOCAB = 99
SMALL = dict(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=3,
    num_attention_heads=4,
    max_position_embeddings=64,
    pad_token_id=None,
    bos_token_id=None,
    eos_token_id=None,
)
# Every matrix splits into groups of 64.
WIDE = dict(hidden_size=64, intermediate_size=128, head_dim=32)


def heads(query, kv, head_dim=8):
    """Attention of so many heads, and a hidden size that they fill."""
    return dict(hidden_size=query * head_dim, num_attention_heads=query, num_key_value_heads=kv)


HEADS = (heads(4, 2), heads(6, 2), heads(4, 4), heads(4, 1))
CHUNKS = (1, 17, 64, 65, 150)  # tokens: about chunks of 64 states, and beyond two of them


@dataclass(frozen=True)
class Family:
    """The names of transformers' classes, what all models of the family are made of, and what its variants change."""

    prefix: str
    variants: tuple = (dict(),)
    settings: dict = field(default_factory=dict)
    shapes: tuple = HEADS  # each variant is compared in one of them, and in the others at night
    model: str = "ForCausalLM"
    config: str = "Config"
    respelled: Callable = spelled_as_4  # how config.json was spelled before transformers 5
    lengths: tuple = (1, 24, 40)  # tokens
    attention: str = "eager"  # transformers' way of computing it
    wide: dict = field(default_factory=dict)  # besides WIDE, where groups are packed
    mlx: dict | None = field(
        default_factory=dict
    )  # what mlx-lm asks of config.json; None where it computes otherwise

    def make(self, variant=0, shape=None, wide=False):
        """A random reference model of a variant, by its number or by what it changes."""
        variant = self.variants[variant] if isinstance(variant, int) else variant
        kind = getattr(tf, self.prefix + self.config)
        known = {each.name for each in dataclasses.fields(kind)} | set(kind.attribute_map)

        def sizes(values):
            return {name: size for name, size in values.items() if name in known}

        shape = sizes(SMALL | (self.shapes[0] if shape is None else shape))
        last = sizes(WIDE) | self.wide if wide else {}
        config = kind(**shape | self.settings | variant | last)
        model = spread(reference(getattr(tf, self.prefix + self.model), config, seed=len(variant)))
        model.config._attn_implementation = self.attention
        return model


def spread(model):
    """The model with states that fade at very different speeds, and random corrections of its routers and scales of its layers."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("A_log"):
                parameter.uniform_(-3, 2)
            elif name.endswith(("dt_bias", "dt_proj.bias")):
                parameter.uniform_(-4, 1)
            elif name == "lm_head.decoder.bias":  # of an untied head: its twin is not used
                model.get_parameter("lm_head.bias").copy_(parameter)
        for name, buffer in model.named_buffers():
            if name.endswith(("e_score_correction_bias", "expert_bias")):
                buffer.copy_(0.3 * torch.randn_like(buffer))
            elif name.endswith("layer_scalar"):
                buffer.uniform_(0.5, 1.5)
    return model


def edit(folder, change):
    """Replace config.json by what `change` makes of it."""
    path = folder / "config.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


def as_written(folder):
    """No other spelling is known."""


def spelled_by_keys(folder):
    """Positions of two kinds of layers as keys of their own: those with a window are not scaled."""

    def change(config):
        rope = config.pop("rope_parameters")
        whole, local = rope["full_attention"], rope["sliding_attention"]
        config["rope_theta"] = whole.pop("rope_theta")
        config["rope_scaling"] = None if whole["rope_type"] == "default" else whole
        gemma = config["model_type"] == "gemma3_text"
        return config | (dict(rope_local_base_freq=local["rope_theta"]) if gemma else {})

    edit(folder, change)


def spelled_as_modernbert(folder):
    """As transformers 4 wrote it, where it could."""

    def change(config):
        rope, types = config["rope_parameters"], config["layer_types"]
        if types[1] != types[2] or any(part["rope_type"] != "default" for part in rope.values()):
            return config
        del config["rope_parameters"], config["layer_types"]
        thetas = {
            f"{key}_rope_theta": rope[f"{kind}_attention"]["rope_theta"]
            for key, kind in (("global", "full"), ("local", "sliding"))
        }
        return config | thetas | {"global_attn_every_n_layers": 3}

    edit(folder, change)


def spelled_as_phi3(folder):
    """With the first releases' name of LongRoPE."""
    spelled_as_4(folder)

    def change(config):
        scaling = config["rope_scaling"]
        if scaling:
            del scaling["rope_type"]
            scaling["type"] = "su"
        return config

    edit(folder, change)


def spelled_as_granite_hybrid(folder):
    """As the published ones name positions and layers."""
    names = {"linear_attention": "mamba", "full_attention": "attention"}

    def change(config):
        kinds = [names.get(kind, kind) for kind in config["layer_types"]]
        positions = config.get("position_embedding_type") or "nope"
        return config | dict(layer_types=kinds, position_embedding_type=positions)

    edit(folder, change)


def spelled_as_kimi_linear(folder):
    """As released: with the layers' numbers, and dense layers by the name of dense layers."""
    file = folder / "model.safetensors"
    dense = ".block_sparse_moe.{}_proj."
    tensors = load_file(file)
    for part in ("gate", "up", "down"):
        old = dense.format(part)
        tensors = {name.replace(old, f".mlp.{part}_proj."): tensor for name, tensor in tensors.items()}
    save_file(tensors, file, {"format": "pt"})

    def change(config):
        types = config.pop("layer_types")
        sizes = {name: config.pop(f"linear_{name}") for name in ("num_heads", "head_dim", "conv_kernel_dim")}
        sizes["short_conv_kernel_size"] = sizes.pop("conv_kernel_dim")
        for key, kind in (("full_attn_layers", "full_attention"), ("kda_layers", "linear_attention")):
            sizes[key] = [index + 1 for index, each in enumerate(types) if each == kind]
        dense = config.pop("mlp_layer_types").count("dense")
        return config | dict(linear_attn_config=sizes, first_k_dense_replace=dense)

    edit(folder, change)


def spelled_as_minimax(folder):
    """As released: with other names of the sums' factors and of the kinds of layers, and without what is computed."""
    file = folder / "model.safetensors"
    computed = ("slope_rate", "_decay")
    tensors = {name: tensor for name, tensor in load_file(file).items() if not name.endswith(computed)}
    save_file(tensors, file, {"format": "pt"})
    spelled_as_4(folder)

    def change(config):
        kinds = [int(kind == "full_attention") for kind in config.pop("layer_types")]
        old = dict(full_attn="full_attention", linear_attn="linear_attention", mlp="mlp")
        for new, name in old.items():
            for factor in ("alpha", "beta"):
                config[f"layernorm_{name}_{factor}"] = config.pop(f"{new}_{factor}_factor")
        return config | dict(model_type="minimax_text_01", attn_type_list=kinds, postnorm=True)

    edit(folder, change)


def spelled_as_nemotron_h(folder):
    """With a pattern of letters for the layers."""
    letters = {"linear_attention": "M", "full_attention": "*", "mlp": "-"}

    def change(config):
        pattern = "".join(letters[kind] for kind in config.pop("layers_block_type"))
        return config | dict(hybrid_override_pattern=pattern)

    edit(folder, change)


def long_rope(pairs, **more):
    """LongRoPE's factors for so many pairs of dimensions."""
    short, long = ([start + step * k for k in range(pairs)] for start, step in ((1, 0.05), (1.5, 0.7)))
    rope = dict(rope_type="longrope", short_factor=short, long_factor=long, **more)
    return dict(num_hidden_layers=2, original_max_position_embeddings=24, rope_parameters=rope)


def rope(kind="default", theta=500.0, **more):
    """A config's part about positions."""
    return dict(rope_type=kind, rope_theta=theta, **more)


def yarn(**more):
    """YaRN from 16 positions to 64."""
    return rope("yarn", factor=4.0, original_max_position_embeddings=16, **more)


TIED, UNTIED = dict(tie_word_embeddings=True), dict(tie_word_embeddings=False)
LINEAR = rope("linear", 300.0, factor=4.0)
FULL, WINDOW = "full_attention", "sliding_attention"
LOCAL = dict(num_hidden_layers=4, layer_types=[FULL, WINDOW, WINDOW, FULL])
EXPERTS = dict(num_experts_per_tok=3, moe_intermediate_size=24)
FFN = dict(moe_intermediate_size=64)
SCALES = dict(
    embedding_multiplier=12.0, residual_multiplier=0.22, attention_multiplier=0.125, logits_scaling=8.0
)
