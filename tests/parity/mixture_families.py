"""Families of mixtures of experts, and a few dense ones, that came after the first."""

from .family import FFN, FULL, LINEAR, TIED, UNTIED, Family

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
    "nemotron": Family(
        "Nemotron",
        (
            dict(),
            TIED | dict(attention_bias=True, mlp_bias=True, norm_eps=1e-3, head_dim=16),
            dict(hidden_act="gelu", rope_parameters=LINEAR | dict(partial_rotary_factor=1.0)),
        ),
    ),
}
