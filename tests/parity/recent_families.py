"""The families of 2025 and 2026 whose checkpoints may hold images' and sounds' encoders beside the text model."""

from .family import CHUNKS, FFN, FULL, TIED, Family, heads, rope

STATES = ["linear_attention", FULL] * 2
DELTA = dict(num_hidden_layers=4, head_dim=16, linear_num_value_heads=4, linear_num_key_heads=2)
DELTA |= dict(linear_key_head_dim=8, linear_value_head_dim=12)
WIDE_DELTA = dict(linear_key_head_dim=32, linear_value_head_dim=32)
SMALL_EXPERTS = dict(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=24)
SECTIONS = rope(mrope_section=[2, 1, 1], mrope_interleaved=True, partial_rotary_factor=0.5)

RECENT = {
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
