"""Families with latent attention besides DeepSeek-V3."""

from .family import CHUNKS, EXPERTS, FFN, Family, as_written, heads, spelled_as_kimi_linear, yarn

LATENTS = (
    heads(4, 4, 10)
    | dict(kv_lora_rank=16, q_lora_rank=14, qk_nope_head_dim=6, qk_rope_head_dim=8, v_head_dim=12),
    heads(2, 2, 12)
    | dict(kv_lora_rank=40, q_lora_rank=10, qk_nope_head_dim=10, qk_rope_head_dim=4, v_head_dim=5),
    heads(3, 3)
    | dict(kv_lora_rank=6, q_lora_rank=14, qk_nope_head_dim=10, qk_rope_head_dim=8, v_head_dim=12),
)
WIDE_LATENTS = dict(kv_lora_rank=64, q_lora_rank=64, qk_nope_head_dim=64, qk_rope_head_dim=8, v_head_dim=64)
INDEXED = EXPERTS | dict(n_routed_experts=12, n_shared_experts=1, n_group=4, topk_group=2)
INDEXED |= dict(first_k_dense_replace=1, index_n_heads=24, index_head_dim=12, index_topk=7)
GROUPED = dict(topk_method="group_limited_greedy", n_group=4, topk_group=2)

LATENT_FAMILIES = {
    "deepseek-v2": Family(
        "DeepseekV2",
        (
            GROUPED,
            dict(q_lora_rank=None),
            GROUPED | dict(topk_group=4, attention_bias=True, first_k_dense_replace=0, n_shared_experts=1),
            dict(num_experts_per_tok=1, rope_parameters=yarn(theta=1e3, mscale=0.707, mscale_all_dim=0.707)),
        ),
        EXPERTS
        | dict(first_k_dense_replace=1, n_routed_experts=12, n_shared_experts=2, routed_scaling_factor=1.7),
        shapes=LATENTS,
        # mlx-lm has no positions but YaRN's.
        wide=FFN
        | WIDE_LATENTS
        | dict(n_routed_experts=8, rope_parameters=yarn(theta=1e3, mscale=0.7, mscale_all_dim=0.7)),
    ),
    "mistral4": Family(
        "Mistral4",
        (
            dict(rope_parameters=yarn(mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.5)),
            dict(q_lora_rank=None, attention_bias=True, first_k_dense_replace=1, norm_topk_prob=False)
            | dict(rope_parameters=yarn(llama_4_scaling_beta=0.3)),
            dict(n_group=4, topk_group=2, n_shared_experts=2, rope_interleave=False)
            | dict(rope_parameters=yarn(theta=1e3, mscale=0.7, mscale_all_dim=1.0, llama_4_scaling_beta=0.2)),
        ),
        EXPERTS | dict(n_routed_experts=12, routed_scaling_factor=1.7),
        shapes=LATENTS[:1],  # transformers writes the share that is rotated into the object that it is given
        respelled=as_written,
        wide=FFN
        | WIDE_LATENTS
        | dict(
            n_routed_experts=8, rope_parameters=yarn(mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.5)
        ),
    ),
    "glm4-moe-lite": Family(
        "Glm4MoeLite",
        (
            dict(),
            dict(q_lora_rank=None, attention_bias=True, mlp_layer_types=["dense", "dense", "sparse"]),
            dict(n_group=4, topk_group=2, rope_parameters=yarn(theta=1e3, mscale=1.0, mscale_all_dim=1.0)),
        ),
        EXPERTS | dict(n_routed_experts=12, n_shared_experts=1, routed_scaling_factor=1.7),
        shapes=LATENTS,
        # mlx-lm gives the latents' norms rms_norm_eps, transformers 1e-6.
        wide=FFN | WIDE_LATENTS | dict(n_routed_experts=8, rms_norm_eps=1e-6),
    ),
    "deepseek-v3.2": Family(
        "DeepseekV32",
        (
            dict(),
            dict(attention_bias=True, first_k_dense_replace=0, index_topk=30),
            dict(rope_parameters=yarn(theta=1e3, mscale=1.0, mscale_all_dim=1.0), n_group=1, topk_group=1),
        ),
        INDEXED,
        shapes=LATENTS,
        wide=FFN | WIDE_LATENTS | dict(n_routed_experts=8, index_head_dim=64, index_n_heads=32),
    ),
    "glm-moe-dsa": Family(
        "GlmMoeDsa",
        (dict(), dict(attention_bias=True, index_topk=1, n_group=2, topk_group=1)),
        INDEXED | dict(n_group=1, topk_group=1),
        shapes=LATENTS,
        wide=FFN | WIDE_LATENTS | dict(n_routed_experts=8, index_head_dim=64, index_n_heads=32),
        mlx=dict(scoring_func="sigmoid", topk_method="noaux_tc", moe_layer_freq=1, first_k_dense_replace=1),
    ),
    "kimi-linear": Family(
        "KimiLinear",
        (
            dict(),
            dict(
                linear_conv_kernel_dim=2,
                mlp_layer_types=["dense", "dense", "sparse", "sparse"],
                attention_bias=True,
            ),
            dict(layer_types=["full_attention", "linear_attention"] * 2, n_group=2, q_lora_rank=14),
        ),
        dict(num_local_experts=8, num_experts_per_tok=3, moe_intermediate_size=24, num_hidden_layers=4)
        | dict(linear_head_dim=8, linear_num_heads=4, linear_conv_kernel_dim=4)
        | dict(layer_types=["linear_attention", "full_attention", "linear_attention", "linear_attention"]),
        shapes=LATENTS[:1],
        respelled=spelled_as_kimi_linear,
        lengths=CHUNKS,
        wide=FFN | WIDE_LATENTS | dict(q_lora_rank=None, linear_head_dim=32, rms_norm_eps=1e-6),
        mlx=dict(head_dim=64, rope_theta=1e4, first_k_dense_replace=1)
        | dict(linear_attn_config=dict(num_heads=4, head_dim=32, full_attn_layers=[2], kda_layers=[1, 3, 4])),
    ),
}
