"""The families whose layers keep states instead of keys and values, or beside them."""

from .family import (
    CHUNKS,
    FFN,
    FULL,
    SCALES,
    TIED,
    UNTIED,
    Family,
    heads,
    rope,
    spelled_as_granite_hybrid,
    spelled_as_minimax,
    spelled_as_nemotron_h,
)

MULTIPLIERS = dict(
    **dict(embedding_multiplier=5.6, lm_head_multiplier=0.2, key_multiplier=0.4, attention_in_multiplier=1.3),
    **dict(attention_out_multiplier=0.9, ssm_in_multiplier=1.25, ssm_out_multiplier=0.3),
    **dict(mlp_multipliers=[0.9, 0.6], ssm_multipliers=[0.35, 0.25, 0.4, 0.5, 0.7]),
)
TYPES = ["linear_attention", "mlp", "full_attention", "mlp", "linear_attention"]
MIXED = ["conv", "full_attention", "conv", "conv", "full_attention"]

HYBRIDS = {
    "mamba": Family(
        "Mamba",
        (
            dict(),
            UNTIED | dict(use_bias=True, layer_norm_epsilon=1e-3),
            dict(use_conv_bias=False, expand=3, time_step_rank=5),
            dict(hidden_act="gelu", residual_in_fp32=False, conv_kernel=1),
        ),
        shapes=(dict(state_size=7), dict(hidden_size=40, num_hidden_layers=2, state_size=4)),
        lengths=CHUNKS,
    ),
    "mamba2": Family(
        "Mamba2",
        (
            dict(),
            TIED | dict(n_groups=4, use_bias=True),
            dict(n_groups=1, use_conv_bias=False, conv_kernel=3, chunk_size=16, time_step_limit=[0.6, 0.8]),
            dict(expand=3, num_heads=12, residual_in_fp32=False, hidden_act="gelu", layer_norm_epsilon=1e-3),
        ),
        dict(num_hidden_layers=2, head_dim=8, n_groups=2, chunk_size=8),
        shapes=(dict(num_heads=8, state_size=7),),
        lengths=CHUNKS,
        mlx=None,
    ),
    "falcon-h1": Family(
        "FalconH1",
        (
            dict(),
            dict(mamba_rms_norm=True, mamba_norm_before_gate=False, mamba_n_groups=4),
            dict(
                mamba_rms_norm=True, mamba_norm_before_gate=True, mamba_conv_bias=False, num_key_value_heads=1
            ),
            dict(
                mamba_d_ssm=None,
                mamba_proj_bias=True,
                projectors_bias=True,
                attention_bias=True,
                mlp_bias=True,
            ),
            TIED | dict(mamba_d_head=6, mamba_d_conv=2, head_dim=12, time_step_limit=[0.6, 0.8]),
            dict(ssm_multipliers=None, mlp_multipliers=None, mamba_chunk_size=16, num_key_value_heads=None),
        ),
        MULTIPLIERS
        | dict(num_hidden_layers=2, mamba_n_heads=8, mamba_n_groups=2, mamba_d_state=7, mamba_chunk_size=8),
        shapes=(heads(4, 2) | dict(mamba_d_ssm=48),),
        lengths=CHUNKS,
        mlx=None,  # it holds the multipliers in the weights: test_falcon_h1.py
    ),
    "granite-hybrid": Family(
        "GraniteMoeHybrid",
        (
            dict(),
            dict(num_local_experts=0, mamba_proj_bias=True, mamba_n_groups=1),
            TIED | dict(position_embedding_type="rope", attention_bias=True, time_step_limit=[0.6, 0.8]),
            dict(
                mamba_conv_bias=False,
                mamba_expand=3,
                mamba_n_heads=12,
                num_key_value_heads=None,
                mamba_d_conv=2,
            ),
        ),
        SCALES
        | dict(num_local_experts=5, num_experts_per_tok=2, shared_intermediate_size=20, mamba_d_state=7)
        | dict(mamba_chunk_size=8, mamba_n_groups=2, layer_types=[TYPES[0], FULL, TYPES[0]]),
        shapes=(heads(4, 2) | dict(mamba_n_heads=8),),
        respelled=spelled_as_granite_hybrid,
        lengths=CHUNKS,
        wide=dict(mamba_n_groups=1, shared_intermediate_size=128),  # as wide as the experts
        mlx=dict(layer_types=["mamba", "attention", "mamba"], position_embedding_type="nope")
        | dict(time_step_limit=[0.0, float("inf")]),
    ),
    "nemotron-h": Family(
        "NemotronH",
        (
            dict(),
            dict(use_bias=True, mlp_bias=True, n_groups=1, layer_norm_epsilon=1e-3),
            dict(use_conv_bias=False, num_key_value_heads=4, mlp_hidden_act="gelu", conv_kernel=2),
        ),
        dict(num_hidden_layers=5, head_dim=12, layers_block_type=TYPES, mamba_num_heads=8, mamba_head_dim=8)
        | dict(n_groups=2, ssm_state_size=7, chunk_size=8),
        shapes=(heads(4, 2),),
        respelled=spelled_as_nemotron_h,
        lengths=CHUNKS,
        mlx=dict(time_step_limit=[0.0, float("inf")]),
    ),
    "lfm2": Family(
        "Lfm2",
        (
            dict(),
            UNTIED | dict(conv_bias=True, norm_eps=1e-3),
            dict(conv_L_cache=5, block_auto_adjust_ff_dim=False, num_key_value_heads=4),
            dict(conv_L_cache=2, block_ffn_dim_multiplier=1.5, layer_types=["full_attention"] + ["conv"] * 4),
            dict(rope_parameters=rope("linear", factor=2.0)),
        ),
        dict(num_hidden_layers=5, intermediate_size=72, block_multiple_of=16, layer_types=MIXED),
        shapes=(heads(4, 2),),
        wide=dict(block_multiple_of=64),
        mlx=dict(rope_theta=1e6, block_dim=64, block_ff_dim=128),
    ),
    "jamba": Family(
        "Jamba",
        (
            dict(),
            TIED | dict(mamba_proj_bias=True, num_experts=1, rms_norm_eps=1e-3),
            dict(
                mamba_conv_bias=False,
                mamba_dt_rank=5,
                mamba_d_conv=2,
                expert_layer_offset=0,
                hidden_act="gelu",
            ),
        ),
        dict(
            num_hidden_layers=4,
            attn_layer_period=3,
            attn_layer_offset=1,
            num_experts=4,
            num_experts_per_tok=2,
        )
        | dict(mamba_d_state=5),
        shapes=(heads(4, 2),),
        lengths=CHUNKS,
        mlx=None,  # whose code weighs experts in another way
    ),
    "minimax": Family(
        "MiniMax",
        (
            dict(),
            TIED | dict(linear_attn_alpha_factor=3.5, full_attn_alpha_factor=2.0, mlp_alpha_factor=1.5),
            dict(
                layer_types=[FULL, "linear_attention", FULL],
                linear_attn_beta_factor=0.5,
                full_attn_beta_factor=0.7,
                mlp_beta_factor=1.3,
                head_dim=12,
            ),
            dict(hidden_act="gelu", num_experts_per_tok=3, sliding_window=7),
        ),
        dict(num_local_experts=5, num_experts_per_tok=2, block_size=8)
        | dict(layer_types=["linear_attention", FULL, "linear_attention"]),
        shapes=(heads(4, 2),),
        respelled=spelled_as_minimax,
        lengths=CHUNKS,
        mlx=None,  # which has none
    ),
    "qwen3-next": Family(
        "Qwen3Next",
        (
            dict(),
            TIED | dict(attention_bias=True, norm_topk_prob=False),
            dict(
                linear_num_key_heads=4, linear_conv_kernel_dim=2, mlp_only_layers=[1], num_key_value_heads=1
            ),
            dict(linear_num_key_heads=1, layer_types=[FULL, "linear_attention"] * 2, hidden_act="gelu"),
            dict(num_experts=0, rope_parameters=rope(partial_rotary_factor=0.5)),
        ),
        dict(num_hidden_layers=4, head_dim=16, linear_num_value_heads=4, linear_num_key_heads=2)
        | dict(linear_key_head_dim=8, linear_value_head_dim=12, num_experts=5, num_experts_per_tok=2)
        | dict(moe_intermediate_size=24, shared_expert_intermediate_size=20),
        shapes=(heads(4, 2),),
        lengths=CHUNKS,
        wide=FFN | dict(shared_expert_intermediate_size=64, linear_key_head_dim=32, linear_value_head_dim=32),
    ),
}
