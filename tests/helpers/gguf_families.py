"""What llama.cpp's converter writes of families whose files differ from those of plain decoders: BERT, T5, Mamba, DeepSeek."""

import numpy as np


def bert_metadata(config):
    return {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.layer_norm_epsilon": config.get("layer_norm_eps", 1e-12),
        "attention.causal": False,
        "pooling_type": 2,
    }


def bert_tensors(arrays, config):
    for key, array in arrays.items():
        key = key.removeprefix("bert.")
        if not key.startswith(("cls.", "pooler.")) and not key.endswith("position_ids"):
            yield key, array


def t5_metadata(config):
    decoder = config.get("num_decoder_layers")
    return {
        "context_length": config.get("n_positions", 512),
        "embedding_length": config["d_model"],
        "feed_forward_length": config["d_ff"],
        "block_count": config["num_layers"],
        **({} if decoder is None else {"decoder_block_count": decoder}),
        "attention.head_count": config["num_heads"],
        "attention.key_length": config["d_kv"],
        "attention.value_length": config["d_kv"],
        "attention.layer_norm_epsilon": config.get("layer_norm_epsilon", 1e-6),
        "attention.relative_buckets_count": config.get("relative_attention_num_buckets", 32),
        "attention.layer_norm_rms_epsilon": config.get("layer_norm_epsilon", 1e-6),
        "decoder_start_token_id": config.get("decoder_start_token_id", 0),
    }


def t5_tensors(arrays, config):
    """The tables of both sides are one: the first that is there."""
    tables = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
    yield "shared.weight", next(arrays[table] for table in tables if table in arrays)
    yield from ((key, array) for key, array in arrays.items() if key not in tables)


def mamba_metadata(config):
    width = config["hidden_size"]
    return {
        "context_length": 2**20,
        "embedding_length": width,
        "feed_forward_length": 0,
        "attention.head_count": 0,
        "block_count": config["num_hidden_layers"],
        "ssm.conv_kernel": config.get("conv_kernel", 4),
        "ssm.inner_size": config.get("intermediate_size", 2 * width),
        "ssm.state_size": config.get("state_size", 16),
        "ssm.time_step_rank": config.get("time_step_rank", -(width // -16)),
        "attention.layer_norm_rms_epsilon": config.get("layer_norm_epsilon", 1e-5),
        "ssm.dt_b_c_rms": False,
    }


def mamba_tensors(arrays, config):
    table = arrays.get("backbone.embeddings.weight")
    for key, array in arrays.items():
        if key.endswith(".A_log"):
            array = -np.exp(array)
        elif key.endswith("conv1d.weight"):
            array = array.squeeze()
        elif key == "lm_head.weight" and np.array_equal(array, table):
            continue
        yield key, array


def deepseek_metadata(config, split=True):
    """`split`: kv_b is two tensors, and attention has one latent head, as since the spring of 2025."""
    heads, rank = config["num_attention_heads"], config["kv_lora_rank"]
    rope, nope, value = (config[name] for name in ("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"))
    scaling = config.get("rope_scaling") or {}
    values = {
        "vocab_size": config["vocab_size"],
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": heads,
        "attention.head_count_kv": 1 if split else heads,
        "rope.freq_base": config.get("rope_theta", 10000.0),
        "attention.layer_norm_rms_epsilon": config.get("rms_norm_eps", 1e-6),
        "expert_used_count": config["num_experts_per_tok"],
        "expert_group_count": config["n_group"],
        "expert_group_used_count": config["topk_group"],
        "expert_gating_func": 2,
        "leading_dense_block_count": config["first_k_dense_replace"],
        "attention.kv_lora_rank": rank,
        "attention.key_length": rank + rope if split else nope + rope,
        "attention.value_length": rank if split else value,
        "expert_feed_forward_length": config["moe_intermediate_size"],
        "expert_count": config["n_routed_experts"],
        "expert_shared_count": config.get("n_shared_experts", 0),
        "expert_weights_scale": config["routed_scaling_factor"],
        "rope.dimension_count": rope,
    }
    if split:
        values |= {"attention.key_length_mla": nope + rope, "attention.value_length_mla": value}
    if config.get("q_lora_rank") is not None:
        values["attention.q_lora_rank"] = config["q_lora_rank"]
    if config.get("norm_topk_prob", True):
        values["expert_weights_norm"] = True
    if scaling:
        values |= {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": scaling["factor"],
            "rope.scaling.original_context_length": scaling["original_max_position_embeddings"],
            "rope.scaling.yarn_beta_fast": scaling["beta_fast"],
            "rope.scaling.yarn_beta_slow": scaling["beta_slow"],
            "rope.scaling.yarn_log_multiplier": 0.1 * scaling["mscale_all_dim"],
        }
    return values


def deepseek_tensors(arrays, config, split=True):
    heads, nope, value = (config[name] for name in ("num_attention_heads", "qk_nope_head_dim", "v_head_dim"))
    for key, array in arrays.items():
        if key == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        if key.endswith("kv_b_proj.weight") and split:
            both = array.reshape(heads, nope + value, -1)
            yield key.replace("kv_b_proj", "k_b_proj"), both[:, :nope].swapaxes(1, 2)
            yield key.replace("kv_b_proj", "v_b_proj"), both[:, nope:]
        else:
            yield key.replace("e_score_correction_bias", "e_score_correction.bias"), array


def old_deepseek_metadata(config):
    return deepseek_metadata(config, split=False)


def old_deepseek_tensors(arrays, config):
    return deepseek_tensors(arrays, config, split=False)


def corrected(arrays, config):
    """Routers' corrections are biases of their own."""
    for key, array in arrays.items():
        yield key.replace("e_score_correction_bias", "e_score_correction.bias"), array


def bloom_metadata(config):
    return {
        "context_length": config.get("seq_length", config["hidden_size"]),
        "embedding_length": config["hidden_size"],
        "feed_forward_length": 4 * config["hidden_size"],
        "block_count": config["n_layer"],
        "attention.head_count": config["n_head"],
        "attention.head_count_kv": config["n_head"],
        "attention.layer_norm_epsilon": config.get("layer_norm_epsilon", 1e-5),
    }


def unfused(arrays, config):
    """All heads' queries, then keys, then values, of what has each head's one after the other."""
    heads = config.get("num_attention_heads") or config["n_head"]
    for key, array in arrays.items():
        if "query_key_value" in key:
            array = array.reshape(heads, 3, -1, *array.shape[1:]).swapaxes(0, 1).reshape(array.shape)
        yield key.removeprefix("transformer."), array


def neox(config):
    return {
        "rope.dimension_count": int(
            config.get("rotary_pct", 0.25) * config["hidden_size"] // config["num_attention_heads"]
        ),
        "use_parallel_residual": config.get("use_parallel_residual", True),
        "attention.layer_norm_epsilon": config.get("layer_norm_eps", 1e-5),
    }


def phi(config):
    return turned(config) | {"attention.layer_norm_epsilon": config.get("layer_norm_eps", 1e-5)}


# Further numbers of decoders, by the names that these have in config.json.
NUMBERS = {
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "attention.scale": "attention_multiplier",
    "logit_scale": "logit_scale",
    "rope.freq_base_swa": "rope_local_base_freq",
    "rope.dimension_count": "rotary_dim",
}


def turned(config):
    """How much of a head is turned."""
    width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return {"rope.dimension_count": int(width * config.get("partial_rotary_factor", 0.5))}


def windowed(config):
    """Which layers have a window."""
    default = [(index + 1) % 4 != 0 for index in range(config["num_hidden_layers"])]
    types = config.get("layer_types")
    pattern = [kind == "sliding_attention" for kind in types] if types else default
    return {"attention.sliding_window_pattern": pattern}


def glm_mixture(config):
    return turned(config) | {
        "expert_count": config["n_routed_experts"],
        "expert_shared_count": config.get("n_shared_experts", 1),
        "expert_weights_scale": config.get("routed_scaling_factor", 1.0),
        "expert_weights_norm": config.get("norm_topk_prob", True),
        "expert_gating_func": 2,
        "leading_dense_block_count": config.get("first_k_dense_replace", 1),
        "expert_group_count": 1,
        "expert_group_used_count": 1,
    }


# What the converter writes of these besides.
FURTHER = {
    "glm4": turned,
    "gpt_neox": neox,
    "phi": phi,
    "glm4_moe": glm_mixture,
    "granite": lambda config: {"logit_scale": config["logits_scaling"]},
    "olmo3": windowed,
    "minimax_m2": lambda config: {
        "expert_feed_forward_length": config["intermediate_size"],
        "expert_gating_func": 2,
    },
    "cohere": lambda config: {"attention.layer_norm_epsilon": config["layer_norm_eps"]},
    "cohere2": lambda config: {"attention.layer_norm_epsilon": config["layer_norm_eps"]},
    "starcoder2": lambda config: {"attention.layer_norm_epsilon": config["norm_epsilon"]},
}
METADATA = {
    "bert": bert_metadata,
    "t5": t5_metadata,
    "mamba": mamba_metadata,
    "bloom": bloom_metadata,
    "deepseek_v3": deepseek_metadata,
}
TENSORS = {
    "bert": bert_tensors,
    "t5": t5_tensors,
    "mamba": mamba_tensors,
    "bloom": unfused,
    "gpt_neox": unfused,
    "deepseek_v3": deepseek_tensors,
    "glm4_moe": corrected,
    "minimax_m2": corrected,
}
# Matrices that stay F32 besides those of decoders.
PLAIN = ("token_types", "ssm_conv1d", "ssm_a")
