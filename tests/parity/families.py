"""The families that transformers has too, each a line of `FAMILIES`: a small config, its variants and shapes.

The tests of test_families.py go over all of them; what is special to one family has a test in a file of its own.
"""

from .encoder_families import ENCODERS
from .family import (
    EXPERTS,
    FFN,
    FULL,
    LINEAR,
    LOCAL,
    SCALES,
    TIED,
    UNTIED,
    WINDOW,
    Family,
    heads,
    long_rope,
    rope,
    spelled_as_modernbert,
    spelled_as_phi3,
    spelled_by_keys,
    yarn,
)
from .hybrid_families import HYBRIDS
from .latent_families import LATENT_FAMILIES, LATENTS, WIDE_LATENTS
from .mixture_families import MIXTURES
from .older_families import OLDER
from .recent_families import RECENT

FAMILIES = HYBRIDS | {
    "llama": Family(
        "Llama",
        (
            dict(rope_parameters=rope()),
            TIED | dict(rms_norm_eps=1e-3),
            dict(attention_bias=True, mlp_bias=True),
            dict(head_dim=12, hidden_act="gelu_pytorch_tanh"),
            dict(hidden_act="relu", rope_parameters=rope("linear", 1e4, factor=4.0)),
            dict(hidden_act="gelu"),
            # Beyond 64 positions dynamic scaling changes every angle.
            dict(rope_parameters=rope("dynamic", 1e4, factor=4.0)),
            dict(
                rope_parameters=rope(
                    **dict(kind="llama3", theta=1e4, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0),
                    original_max_position_embeddings=16,
                )
            ),
            dict(rope_parameters=yarn(theta=1e4)),
            dict(
                rope_parameters=yarn(
                    **dict(theta=1e3, beta_fast=16.0, beta_slow=2.0, mscale=0.8, mscale_all_dim=0.5),
                    truncate=False,
                )
            ),
            dict(rope_parameters=yarn(theta=1e3, attention_factor=1.7)),
        ),
        lengths=(1, 40, 64, 90),
    ),
    "mistral": Family("Mistral", tuple(dict(sliding_window=window) for window in (None, 5, 16))),
    "qwen2": Family(
        "Qwen2",
        (
            dict(),
            dict(use_sliding_window=True, sliding_window=6, max_window_layers=1),
            dict(use_sliding_window=True, sliding_window=6, **LOCAL),
            TIED,
        ),
    ),
    "qwen3": Family(
        "Qwen3",
        (
            dict(head_dim=16),
            TIED | dict(attention_bias=True),
            dict(use_sliding_window=True, sliding_window=6, max_window_layers=0),
            dict(rope_parameters=yarn(theta=1e4)),
        ),
        dict(head_dim=8),
    ),
    "mixtral": Family(
        "Mixtral",
        (
            dict(num_local_experts=4),
            TIED
            | dict(head_dim=16, num_local_experts=5, num_experts_per_tok=3, sliding_window=6)
            | dict(hidden_act="gelu", rope_parameters=rope("linear", 5000.0, factor=2.0)),
        ),
        wide=dict(num_local_experts=4, head_dim=16),  # mlx-lm knows no head_dim
    ),
    "qwen2-moe": Family(
        "Qwen2Moe",
        (
            dict(num_experts=6, num_experts_per_tok=2),
            dict(num_experts=5, num_experts_per_tok=5, norm_topk_prob=True, qkv_bias=False)
            | dict(mlp_only_layers=[1], use_sliding_window=True, sliding_window=6, max_window_layers=1),
        ),
        dict(moe_intermediate_size=24, shared_expert_intermediate_size=40),
        wide=FFN | dict(shared_expert_intermediate_size=64, num_experts=4),
    ),
    "qwen3-moe": Family(
        "Qwen3Moe",
        (
            EXPERTS | dict(head_dim=16, num_experts=8, norm_topk_prob=True),
            dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, attention_bias=True)
            | dict(decoder_sparse_step=2, use_sliding_window=True, sliding_window=5),
        ),
        wide=FFN,
    ),
    "gpt2": Family(
        "GPT2",
        (
            dict(),
            dict(scale_attn_by_inverse_layer_idx=True, n_inner=50),
            UNTIED | dict(activation_function="relu", layer_norm_epsilon=1e-3),
            dict(activation_function="gelu", scale_attn_weights=False),
            dict(reorder_and_upcast_attn=True),
        ),
        model="LMHeadModel",
        shapes=(heads(4, 4), heads(3, 3, 16)),
    ),
    "gpt": Family(
        "OpenAIGPT",
        (dict(), dict(afn="relu"), UNTIED | dict(afn="silu", layer_norm_epsilon=1e-3)),
        model="LMHeadModel",
        shapes=(heads(4, 4), heads(3, 3, 16)),
        mlx=None,
    ),
    "gemma2": Family(
        "Gemma2",
        (
            dict(head_dim=16, query_pre_attn_scalar=16),
            # Scores are not scaled by head_dim, as in the 27b.
            UNTIED
            | dict(attn_logit_softcapping=2.0, final_logit_softcapping=3.0, query_pre_attn_scalar=20)
            | dict(rope_parameters=rope(theta=5000.0), layer_types=[FULL, WINDOW, WINDOW]),
            dict(attention_bias=True, attn_logit_softcapping=None, final_logit_softcapping=None)
            | dict(hidden_activation="gelu", rms_norm_eps=1e-3, rope_parameters=LINEAR),
        ),
        dict(head_dim=8, sliding_window=6),
        wide=dict(sliding_window=64),  # mlx-lm gives this family no window
    ),
    "gpt-oss": Family(
        "GptOss",
        (
            dict(head_dim=16, num_local_experts=4, num_experts_per_tok=2),
            TIED
            | dict(num_local_experts=6, num_experts_per_tok=4, swiglu_limit=0.5, swiglu_alpha=1.1)
            | dict(attention_bias=False, layer_types=[FULL, FULL, WINDOW])
            | dict(rope_parameters=rope(theta=1e4)),
        ),
        dict(head_dim=8, sliding_window=6),
        # mlx-lm rounds the ends of YaRN's ramp whatever `truncate` says.
        wide=dict(intermediate_size=64, rope_parameters=yarn(truncate=True)),
    ),
    "deepseek-v3": Family(
        "DeepseekV3",
        (
            dict(),
            dict(q_lora_rank=None),
            TIED | dict(rope_interleave=False, attention_bias=True),
            dict(n_group=1, topk_group=1, num_experts_per_tok=5, n_shared_experts=2),
            dict(topk_group=4, norm_topk_prob=False),
            dict(num_experts_per_tok=1, first_k_dense_replace=0, rms_norm_eps=1e-3),
            dict(first_k_dense_replace=3, hidden_act="gelu"),
            dict(rope_parameters=yarn(theta=1e3, mscale=1.0, mscale_all_dim=1.0)),
            dict(rope_parameters=yarn(theta=1e3, mscale=0.7, mscale_all_dim=1.3)),
            dict(rope_parameters=yarn(theta=1e3)),
            # YaRN without a ramp, as Kimi K2's.
            dict(
                **dict(n_group=1, topk_group=1),
                rope_parameters=yarn(theta=1e3, mscale=1.0, mscale_all_dim=1.0, beta_fast=1.0, beta_slow=1.0),
            ),
        ),
        EXPERTS
        | dict(first_k_dense_replace=1, n_routed_experts=12, n_group=4, topk_group=2, n_shared_experts=1)
        | dict(routed_scaling_factor=1.7),
        shapes=LATENTS,
        # One group: where there are more, mlx-lm gives experts of the others the merit 0, not −∞.
        wide=FFN | WIDE_LATENTS | dict(n_group=1, topk_group=1, n_routed_experts=8),
    ),
    "olmo2": Family(
        "Olmo2",
        (
            dict(),
            TIED | dict(attention_bias=True),
            dict(rope_parameters=rope("dynamic", factor=2.0), rms_norm_eps=1e-3),
        ),
    ),
    "olmo3": Family(
        "Olmo3",
        (
            dict(),
            TIED | LOCAL | dict(attention_bias=True),
            dict(rope_parameters=dict(full_attention=yarn(), sliding_attention=rope())),
        ),
        dict(sliding_window=7, num_hidden_layers=4),
        respelled=spelled_by_keys,
    ),
    "gemma3": Family(
        "Gemma3",
        (
            dict(num_hidden_layers=6),
            UNTIED | LOCAL | dict(attention_bias=True),
            LOCAL
            | dict(final_logit_softcapping=3.0, rms_norm_eps=1e-3)
            | dict(rope_parameters=dict(full_attention=LINEAR, sliding_attention=rope(theta=50.0))),
        ),
        dict(sliding_window=7, head_dim=16, query_pre_attn_scalar=20),
        config="TextConfig",
        respelled=spelled_by_keys,
    ),
    "glm4": Family(
        "Glm4",
        (
            dict(),
            TIED | dict(attention_bias=False, rms_norm_eps=1e-3),
            dict(rope_parameters=yarn(partial_rotary_factor=0.5), head_dim=16),
        ),
        dict(head_dim=8),
    ),
    "glm4-moe": Family(
        "Glm4Moe",
        (
            dict(),
            dict(use_qk_norm=True, attention_bias=True, first_k_dense_replace=3, routed_scaling_factor=2.5),
            dict(n_group=3, topk_group=2, norm_topk_prob=False, n_shared_experts=2),
        ),
        EXPERTS | dict(n_routed_experts=6, head_dim=8, num_hidden_layers=4),
        wide=FFN,
    ),
    "minimax-m2": Family(
        "MiniMaxM2",
        (dict(rotary_dim=4), TIED | dict(rms_norm_eps=1e-3, head_dim=16)),
        dict(num_local_experts=6, num_experts_per_tok=3, head_dim=8),
    ),
    "granite": Family(
        "Granite",
        (
            SCALES,
            TIED | dict(residual_multiplier=0.5, attention_bias=True, mlp_bias=True),
            dict(attention_multiplier=0.3, rope_parameters=LINEAR),
        ),
    ),
    "smollm3": Family(
        "SmolLM3",
        (
            dict(),
            UNTIED | dict(no_rope_layers=[0, 1, 1, 0], attention_bias=True, mlp_bias=True),
            dict(use_sliding_window=True, sliding_window=7, no_rope_layer_interval=2),
        ),
        dict(num_hidden_layers=4),
    ),
    "phi3": Family(
        "Phi3",
        (
            dict(),
            TIED | dict(sliding_window=7),
            dict(rope_parameters=rope(partial_rotary_factor=0.5)),
            long_rope(4, rope_theta=300.0),
            long_rope(4, attention_factor=1.3),
            long_rope(4, factor=1.0),
            long_rope(2, partial_rotary_factor=0.5) | dict(sliding_window=9),
        ),
        dict(pad_token_id=0),
        respelled=spelled_as_phi3,
    ),
    "cohere": Family(
        "Cohere", (dict(), UNTIED | dict(attention_bias=True, logit_scale=0.25, layer_norm_eps=1e-3))
    ),
    "cohere2": Family(
        "Cohere2",
        (
            dict(),
            UNTIED | dict(attention_bias=True, logit_scale=0.25),
            LOCAL,
            dict(sliding_window=64, rope_parameters=rope(theta=300.0), layer_norm_eps=1e-3),
        ),
        dict(sliding_window=7, num_hidden_layers=4),
    ),
    "starcoder2": Family(
        "Starcoder2",
        (
            dict(),
            UNTIED | dict(sliding_window=7, use_bias=False, norm_epsilon=1e-3),
            dict(hidden_act="gelu", rope_parameters=LINEAR),
        ),
    ),
    "ernie4.5": Family(
        "Ernie4_5",
        (dict(), UNTIED | dict(use_bias=True, head_dim=16, rope_parameters=rope())),
        dict(head_dim=8),
    ),
    "hunyuan-dense": Family(
        "HunYuanDenseV1",
        (
            dict(rope_parameters=rope("dynamic", 1e4, alpha=1000.0, factor=1.0)),
            TIED | dict(attention_bias=True, head_dim=16, rms_norm_eps=1e-3),
        ),
        dict(head_dim=8),
    ),
    "seed-oss": Family(
        "SeedOss",
        (dict(), TIED | dict(attention_bias=False, attention_out_bias=True, mlp_bias=True)),
        dict(head_dim=16),
    ),
    "modernbert": Family(
        "ModernBert",
        (
            dict(),
            dict(
                attention_bias=True,
                mlp_bias=True,
                norm_bias=True,
                classifier_bias=True,
                hidden_activation="relu",
            ),
            UNTIED | dict(local_attention=5),
            dict(decoder_bias=False, layer_types=[WINDOW, FULL] * 2),
            dict(
                rope_parameters=dict(
                    full_attention=rope("linear", factor=2.0), sliding_attention=rope(theta=50.0)
                )
            ),
        ),
        dict(num_hidden_layers=4, local_attention=6)
        | dict.fromkeys((f"{name}_token_id" for name in ("pad", "bos", "eos", "cls", "sep")), 0),
        shapes=(heads(4, 4), heads(3, 3, 16)),
        model="ForMaskedLM",
        respelled=spelled_as_modernbert,
        mlx=None,
    ),
}
FAMILIES |= RECENT | MIXTURES | OLDER | LATENT_FAMILIES | ENCODERS
DECODERS = [name for name, family in FAMILIES.items() if family.model != "ForMaskedLM"]
