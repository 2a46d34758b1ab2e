"""Small configs of mlx-lm's architectures, made from what their ModelArgs ask for; and folders of random models.

A field gets a small number by its name; `CHANGES` has what the families need besides: which layers are of which kind,
nested configs, numbers that must fit together.
"""

import dataclasses
import importlib
import json
import types
import typing

import mlx.core as mx
from mlx_lm.utils import load_model, save_model

VOCAB = 96
SMALL = {
    1: "n_group topk_group n_groups moe_layer_freq mamba_n_groups num_dense_layers first_k_dense_replace "
    "zero_expert_num num_nextn_predict_layers num_expert_group",
    2: "num_key_value_heads num_kv_heads n_kv_heads num_attention_groups num_experts_per_tok num_experts_per_token "
    "moe_topk moe_k moe_top_k top_k_experts n_shared_experts num_shared_experts num_shared_expert "
    "linear_num_key_heads full_attention_interval num_global_key_value_heads swa_num_key_value_heads "
    "num_swa_key_value_heads decoder_sparse_step moe_layer_interval n_shared_head cla_share_factor",
    3: "conv_L_cache",
    4: "num_hidden_layers num_layers n_layers n_layer num_transformer_layers num_attention_heads n_heads n_head "
    "num_heads num_query_heads num_experts n_routed_experts num_local_experts moe_num_experts conv_kernel "
    "conv1d_width mamba_d_conv linear_conv_kernel_dim short_conv_kernel_size mamba_n_heads mamba_num_heads "
    "linear_num_value_heads num_swa_attention_heads swa_num_attention_heads index_n_heads",
    8: "qk_rope_head_dim sliding_window window_size sliding_window_size attention_window_size",
    16: "head_dim v_head_dim qk_nope_head_dim kv_lora_rank q_lora_rank mamba_d_state state_size ssm_state_size "
    "linear_key_head_dim linear_value_head_dim mamba_d_head mamba_head_dim time_step_rank a_low_rank_dim "
    "v_low_rank_dim gate_low_rank_dim decay_low_rank_dim kv_channels hidden_size_per_head global_head_dim "
    "swa_head_dim swa_v_head_dim index_head_dim hidden_size_per_layer_input rotary_dim query_pre_attn_scalar",
    48: "moe_intermediate_size expert_ffn_hidden_size shared_expert_intermediate_size share_expert_dim "
    "moe_shared_expert_intermediate_size",
    64: "hidden_size d_model n_embd model_dim hidden_dim dim_model_base block_dim n_ctx n_positions block_size "
    "mamba_d_ssm moe_hidden_size",
    96: "intermediate_size intermediate_size_mlp ffn_hidden_size ff_intermediate_size shared_intermediate_size "
    "n_inner block_ff_dim vocab_size num_vocab vocab_size_per_layer_input",
    128: "max_position_embeddings model_max_length original_max_position_embeddings",
}
NUMBERS = {name: number for number, names in SMALL.items() for name in names.split()}

TURNS = ["sliding_attention", "full_attention"] * 2
ROPE = dict(rope_theta=10000.0, rope_type="default")
SCALED = dict(ROPE, llama_4_scaling_beta=0.1, original_max_position_embeddings=64, type="default")
YARN = dict(type="yarn", factor=2.0, original_max_position_embeddings=64, mscale=1.0, mscale_all_dim=1.0)
LONG = dict(
    type="longrope", original_max_position_embeddings=64, short_factor=[1.0] * 4, long_factor=[2.0] * 4
)
GROUPED = dict(topk_method="noaux_tc", scoring_func="sigmoid")
DELTA = dict(kda_layers=[1, 2, 3], full_attn_layers=[4], num_heads=4, head_dim=16, short_conv_kernel_size=4)
SOME = dict(full_attn_idxs=[1, 3])
ACTIVE, IDLE = (
    dict(attention=dict(n_heads_in_group=2), ffn=dict(ffn_mult=1.5)),
    dict(attention=dict(no_op=True), ffn=dict(replace_with_linear=True)),
)


def inner(module, of="ModelArgs", **changes):
    """The config of another module, to be nested as a text_config."""
    return lambda: made(getattr(importlib.import_module(f"mlx_lm.models.{module}"), of), module) | changes


CHANGES = {
    "afmoe": dict(layer_types=TURNS),
    "dbrx": dict(
        ffn_config=dict(ffn_hidden_size=96, moe_num_experts=4, moe_top_k=2),
        attn_config=dict(kv_n_heads=2, clip_qkv=8.0, rope_theta=10000.0),
    ),
    "deepseek_v2": dict(rope_scaling=YARN),
    "exaone4": dict(sliding_window_pattern="LG"),
    "exaone_moe": dict(layer_types=TURNS, is_moe_layer=[False, True, True, True]),
    "gear": dict(layer_types=["sliding_attention", "full_attention", "conv_mixer", "full_attention"]),
    "gemma3": dict(text_config=inner("gemma3_text", sliding_window_pattern=2), vocab_size=VOCAB),
    "gemma3_text": dict(sliding_window_pattern=2),
    "gemma3n": dict(
        text_config=inner(
            "gemma3n",
            "TextConfig",
            layer_types=TURNS * 2,
            num_hidden_layers=8,
            num_kv_shared_layers=2,
            activation_sparsity_pattern=[0.5] * 4 + [0.0] * 4,
            altup_num_inputs=2,
            altup_active_idx=0,
            laurel_rank=8,
        )
    ),
    "gemma4": dict(
        text_config=inner("gemma4_text", sliding_window_pattern=2, num_kv_shared_layers=0), vocab_size=VOCAB
    ),
    "gemma4_text": dict(sliding_window_pattern=2, num_kv_shared_layers=0),
    "glm_moe_dsa": dict(rope_parameters=ROPE, num_key_value_heads=4, **GROUPED),
    "granitemoehybrid": dict(
        layer_types=["mamba", "attention"] * 2,
        num_hidden_layers=4,
        mamba_proj_bias=False,
        mamba_conv_bias=True,
        time_step_limit=[0.001, 100.0],
    ),
    "hunyuan": dict(use_cla=True, use_qk_norm=True, rope_scaling=dict(type="dynamic", alpha=2.0, factor=1.0)),
    "jamba": dict(layers_block_type=["mamba", "attention"] * 2, expert_layer_period=2, expert_layer_offset=1),
    "kimi_k25": dict(text_config=inner("deepseek_v3")),
    "kimi_k3": dict(text_config=inner("kimi_k3", "TextArgs", linear_attn_config=DELTA)),
    "kimi_linear": dict(linear_attn_config=DELTA),
    "kimi_vl": dict(text_config=inner("kimi_vl", "TextArgs")),
    "lfm2": SOME,
    "lfm2-vl": dict(text_config=inner("lfm2", **SOME)),
    "lfm2_moe": SOME,
    "llama4": dict(
        text_config=inner(
            "llama4", "TextArgs", num_experts_per_tok=1, interleave_moe_layer_step=2, attention_chunk_size=8
        )
    ),
    "llama4_text": dict(no_rope_layers=[1, 1, 1, 0]),
    "longcat_flash": dict(mla_scale_q_lora=True, mla_scale_kv_lora=True, zero_expert_type="identity"),
    "longcat_flash_ngram": dict(mla_scale_q_lora=True, mla_scale_kv_lora=True),
    "mamba2": dict(time_step_limit=[0.0, 100.0], intermediate_size=64),
    "mellum": dict(layer_types=TURNS, rope_parameters=dict.fromkeys(TURNS, ROPE)),
    "mimo_v2_flash": dict(
        hybrid_layer_pattern=[0, 1, 0, 1], moe_layer_freq=[0, 1, 1, 1], partial_rotary_factor=0.5, **GROUPED
    ),
    "minicpm3": dict(rope_scaling=LONG),
    "minimax_m3_vl": dict(text_config=inner("minimax_m3_vl", "TextArgs", moe_layer_freq=[0, 1, 1, 1])),
    "ministral3": dict(layer_types=TURNS, rope_parameters=SCALED),
    "mistral3": dict(text_config=inner("llama")),
    "mistral4": dict(rope_parameters=SCALED),
    "muse_spark": dict(
        text_config=inner(
            "muse_spark",
            "TextArgs",
            layer_types=TURNS,
            layer_rope_theta=[10000.0, 0.0] * 2,
            rope_parameters=ROPE,
            num_shared_experts=0,
        )
    ),
    "nemotron-nas": dict(block_configs=[ACTIVE, ACTIVE, ACTIVE, IDLE]),
    "nemotron_h": dict(
        hybrid_override_pattern=["M", "*", "-", "E"], norm_topk_prob=True, routed_scaling_factor=1.0
    ),
    "openelm": dict(num_query_heads=[4] * 4, num_kv_heads=[2] * 4, ffn_multipliers=[1.0] * 4),
    "phi3small": dict(vocab_size=100352),  # it knows the ids of tokens that are none
    "pixtral": dict(text_config=inner("llama")),
    "qwen2_vl": dict(text_config=inner("qwen2")),
    "qwen3": dict(rope_theta=10000.0),
    "qwen3_5": dict(text_config=inner("qwen3_5", "TextModelArgs")),
    "qwen3_5_moe": dict(text_config=inner("qwen3_5", "TextModelArgs")),
    "qwen3_vl": dict(text_config=inner("qwen3", rope_theta=10000.0)),
    "qwen3_vl_moe": dict(text_config=inner("qwen3_moe")),
    "recurrent_gemma": dict(block_types=["recurrent", "recurrent", "attention"]),
    "seed_oss": dict(tie_word_embeddings=False),  # tied, mlx-lm multiplies by packed numbers once quantized
    "spark2_5": dict(rope_parameters=dict.fromkeys(TURNS, ROPE)),
}


def small(module):
    """The small config of a module of `mlx_lm.models`."""
    config = made(importlib.import_module(f"mlx_lm.models.{module}").ModelArgs, module)
    return config | {k: v() if callable(v) else v for k, v in CHANGES.get(module, {}).items()}


def made(arguments, module):
    """A small value for each field of a ModelArgs that needs one, or has a large default."""
    hints = typing.get_type_hints(arguments)
    config = {}
    for field in dataclasses.fields(arguments):
        needed = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if field.name == "model_type":
            config[field.name] = module
        elif field.name in NUMBERS and (needed or field.default is None or isinstance(field.default, int)):
            config[field.name] = NUMBERS[field.name]
        elif needed:
            config[field.name] = value(field.name, hints[field.name])
    return config


def value(name, hint):
    """A value of this type for a field whose name says no number."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        hint = typing.get_args(hint)[0]
    kind = typing.get_origin(hint) or hint
    if kind is float:
        return 10000.0 if "theta" in name else 1e-5 if "eps" in name else 1.0
    return {bool: False, int: 2, list: [], tuple: [], dict: {}, str: "x"}.get(kind)


def write(folder, module, config=None, quantize=None):
    """A random model as mlx-lm saves it, by its own code; gives what mlx-lm then loads from there."""
    from mlx_lm.utils import quantize_model

    config = json.loads(json.dumps(config or small(module)))
    mx.random.seed(3)
    network = _classes(module)[0](_classes(module)[1].from_dict(json.loads(json.dumps(config))))
    if quantize:
        network, config = quantize_model(network, config, 32, quantize)
    save_model(folder, network)
    (folder / "config.json").write_text(json.dumps(config))
    return load(folder, module)


def load(folder, module):
    """What mlx-lm loads from a folder."""
    return load_model(folder, get_model_classes=lambda config: _classes(module))[0]


def _classes(module):
    found = importlib.import_module(f"mlx_lm.models.{module}")
    return found.Model, found.ModelArgs
