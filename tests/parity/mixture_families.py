"""Families of mixtures of experts, and a few dense ones, that came after the first."""

from .family import FFN, FULL, LINEAR, TIED, UNTIED, Family, as_written, rope

SHARP = rope("llama3", 500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=1.0)
SHARP |= dict(original_max_position_embeddings=16)

MIXTURES = {
    "exaone4": Family(
        "Exaone4",
        (
            dict(sliding_window=6),
            TIED | dict(sliding_window=None, layer_types=[FULL] * 4, rms_norm_eps=1e-3),
            dict(sliding_window=5, sliding_window_pattern=2),
        ),
        dict(num_hidden_layers=4),
        mlx=dict(sliding_window_pattern="LLLG"),
    ),
    "olmoe": Family(
        "Olmoe",
        (
            dict(num_experts=6, num_experts_per_tok=2),
            TIED | dict(num_experts=5, num_experts_per_tok=5, norm_topk_prob=True, attention_bias=True),
        ),
        wide=dict(num_experts=4),
    ),
    "dots1": Family(
        "Dots1",
        (
            dict(n_routed_experts=6, num_experts_per_tok=2, norm_topk_prob=True),
            dict(
                n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2, routed_scaling_factor=2.5
            )
            | dict(first_k_dense_replace=0, attention_bias=True, sliding_window=6, max_window_layers=1),
        ),
        dict(moe_intermediate_size=24, n_shared_experts=2, first_k_dense_replace=1, sliding_window=None),
        wide=FFN,
    ),
    "ernie4.5-moe": Family(
        "Ernie4_5_Moe",
        (
            dict(moe_num_experts=6, moe_k=2, moe_num_shared_experts=1),
            UNTIED | dict(moe_num_experts=5, moe_k=5, moe_num_shared_experts=0, moe_layer_interval=2),
        ),
        dict(moe_intermediate_size=24, moe_layer_start_index=0),
        mlx=None,  # it drops the router's bias
    ),
    "llama4": Family(
        "Llama4",
        (
            dict(num_experts_per_tok=1),
            TIED
            | dict(
                num_experts_per_tok=2, interleave_moe_layer_step=2, use_qk_norm=False, attention_bias=True
            ),
            dict(attention_chunk_size=None, no_rope_layers=[1, 0, 1, 1], attn_temperature_tuning=False)
            | dict(rope_parameters=SHARP, moe_layers=[0, 3], rms_norm_eps=1e-3),
            dict(moe_layers=[], interleave_moe_layer_step=0),
        ),
        dict(num_hidden_layers=4, num_local_experts=5, head_dim=8, intermediate_size_mlp=40)
        | dict(attention_chunk_size=7, floor_scale=5, attn_scale=0.4),
        config="TextConfig",
        respelled=as_written,
        wide=dict(attention_chunk_size=64, rms_norm_eps=1e-6, num_local_experts=4, intermediate_size_mlp=64),
    ),
    "lfm2-moe": Family(
        "Lfm2Moe",
        (
            dict(num_experts=6, num_experts_per_tok=2),
            UNTIED
            | dict(num_experts=5, num_experts_per_tok=5, norm_topk_prob=False, routed_scaling_factor=2.5)
            | dict(num_dense_layers=0, conv_bias=True, conv_L_cache=4, norm_eps=1e-3),
        ),
        dict(moe_intermediate_size=24, num_dense_layers=1, layer_types=["conv", FULL, "conv"]),
        wide=FFN | dict(num_experts=4),
    ),
    "hunyuan-moe": Family(
        "HunYuanMoEV1",
        (
            dict(rope_parameters=rope("dynamic", 1e4, alpha=1000.0, factor=1.0)),
            TIED | dict(attention_bias=True, rms_norm_eps=1e-3, moe_topk=[2] * 3),
        ),
        dict(head_dim=8, num_experts=5, moe_topk=3),
        mlx=None,  # its weights of experts do not sum to one
    ),
    "nemotron": Family(
        "Nemotron",
        (
            dict(),
            TIED | dict(attention_bias=True, mlp_bias=True, norm_eps=1e-3, head_dim=16),
            dict(hidden_act="gelu", rope_parameters=LINEAR | dict(partial_rotary_factor=1.0)),
        ),
    ),
}
