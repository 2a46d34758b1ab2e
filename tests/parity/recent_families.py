"""The families of 2025 and 2026 whose checkpoints may hold images' and sounds' encoders beside the text model."""

from .family import CHUNKS, FFN, FULL, TIED, VOCAB, WINDOW, Family, as_written, heads, rope, yarn

STATES = ["linear_attention", FULL] * 2
DELTA = dict(num_hidden_layers=4, head_dim=16, linear_num_value_heads=4, linear_num_key_heads=2)
DELTA |= dict(linear_key_head_dim=8, linear_value_head_dim=12)
WIDE_DELTA = dict(linear_key_head_dim=32, linear_value_head_dim=32)
SMALL_EXPERTS = dict(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=24)
SECTIONS = rope(mrope_section=[2, 1, 1], mrope_interleaved=True, partial_rotary_factor=0.5)

# Gemma 4 with inputs for each layer, and layers that share keys and values.
E_TYPE = dict(num_hidden_layers=6, layer_types=[WINDOW, FULL] * 3, num_kv_shared_layers=2)
E_TYPE |= dict(hidden_size_per_layer_input=8, vocab_size_per_layer_input=VOCAB, final_logit_softcapping=30.0)
# Gemma 4 with experts beside each layer's dense feed-forward.
BESIDE = dict(enable_moe_block=True, num_experts=5, top_k_experts=2, moe_intermediate_size=24)
WINDOWS = ["sliding_attention", "sliding_attention", FULL]

RECENT = {
    "gemma4": Family(
        "Gemma4",
        (
            dict(),
            dict(attention_k_eq_v=True, num_global_key_value_heads=1, final_logit_softcapping=30.0),
            TIED | dict(attention_k_eq_v=True, sliding_window=16, global_head_dim=24, rms_norm_eps=1e-3),
            E_TYPE,
            E_TYPE | dict(use_double_wide_mlp=True, vocab_size_per_layer_input=VOCAB + 5),
            E_TYPE | dict(num_kv_shared_layers=4, attention_k_eq_v=True, num_global_key_value_heads=1),
            BESIDE,
            TIED | BESIDE | dict(attention_k_eq_v=True, top_k_experts=5, hidden_activation="silu"),
        ),
        dict(
            hidden_size_per_layer_input=0,
            layer_types=WINDOWS,
            sliding_window=5,
            head_dim=8,
            global_head_dim=16,
        ),
        shapes=(heads(4, 2),),
        config="TextConfig",
        respelled=as_written,
        wide=FFN | dict(global_head_dim=64),
    ),
    "ministral3": Family(
        "Ministral3",
        (
            dict(rope_parameters=yarn(llama_4_scaling_beta=0.5)),
            TIED
            | dict(sliding_window=9, rms_norm_eps=1e-3)
            | dict(rope_parameters=yarn(llama_4_scaling_beta=0.3, mscale=1.0, mscale_all_dim=1.0)),
        ),
        dict(head_dim=8),
        respelled=as_written,
        lengths=(1, 24, 63),
    ),
    "gemma3n": Family(
        "Gemma3n",
        (
            dict(),
            dict(
                altup_num_inputs=2,
                activation_sparsity_pattern=[0.0] * 6,
                vocab_size_per_layer_input=VOCAB - 5,
            ),
            dict(intermediate_size=[48, 64] * 3, num_kv_shared_layers=3, final_logit_softcapping=5.0),
        ),
        dict(
            num_hidden_layers=6,
            num_kv_shared_layers=2,
            hidden_size_per_layer_input=8,
            vocab_size_per_layer_input=VOCAB,
            activation_sparsity_pattern=[0.9, 0.5, 0.0] * 2,
            laurel_rank=8,
            layer_types=[WINDOW, FULL] * 3,
            sliding_window=5,
            head_dim=8,
        ),
        shapes=(heads(4, 2), heads(4, 1)),
        config="TextConfig",
        respelled=as_written,
        mlx=None,  # it reads the text model within one of images and sound alone
    ),
    "qwen3.5": Family(
        "Qwen3_5",
        (
            dict(),
            TIED | dict(attention_bias=True, rope_parameters=SECTIONS),
            dict(linear_num_key_heads=1, layer_types=STATES, hidden_act="gelu", linear_conv_kernel_dim=2),
        ),
        DELTA,
        shapes=(heads(4, 2),),
        config="TextConfig",
        lengths=CHUNKS,
        wide=WIDE_DELTA,
    ),
    "qwen3.5-moe": Family(
        "Qwen3_5Moe",
        (
            dict(),
            TIED | dict(attention_bias=True, num_key_value_heads=1, rope_parameters=SECTIONS),
            dict(linear_num_key_heads=4, layer_types=STATES),
        ),
        DELTA | SMALL_EXPERTS | dict(shared_expert_intermediate_size=20),
        shapes=(heads(4, 2),),
        config="TextConfig",
        lengths=CHUNKS,
        wide=FFN | WIDE_DELTA | dict(shared_expert_intermediate_size=64),
    ),
}
