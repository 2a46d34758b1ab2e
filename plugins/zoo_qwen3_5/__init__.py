"""Qwen3.5, dense and with experts, as differences from Qwen3-Next. Imports no mlx."""

from zoo.architecture import Architecture, OfBlock, Preset, Rename, Split, behind, hookimpl
from zoo_llama import published, sized
from zoo_mixtral import QWEN_MLX_WEIGHTS, QWEN_WEIGHTS
from zoo_qwen3_next import DELTA, MIXER, MLX_NORMS, POCKET, TINY, common, prediction, qwen3_next
from zoo_qwen3_next.specs import GatedDeltaNet


def qwen3_5(config):
    """Qwen3-Next with a feed-forward in the place of experts (Qwen, 2026)."""
    return qwen3_next(read(config, num_key_value_heads=4, num_experts=0))


def qwen3_5_moe(config):
    """Qwen3-Next with 256 experts, eight of them used by each token (Qwen, 2026)."""
    config = read(config, num_experts=256, num_experts_per_tok=8, intermediate_size=512)
    config.refuse("norm_topk_prob", False)  # the weights of a token's experts sum to one
    return qwen3_next(config)


def read(config, **defaults):
    """The config with the family's defaults."""
    config.ignore("mamba_ssm_dtype")  # states are float32
    if not config.flag("attn_output_gate", True):
        raise config.error("attn_output_gate", "is not implemented")
    return config.with_defaults(**defaults)


def rules(axis):
    """What both layouts have beside Qwen's mixtures; `axis` is where the convolution's one input channel stands."""
    parts = {"z": "z", "b": "beta", "a": "alpha"}
    projections = (
        Split(
            DELTA + "in_proj_qkv.*",
            tuple(f"{MIXER}{part}.*" for part in "qkv"),
            sizes=("key_dim", "key_dim", "group_values"),
        ),
        *(Rename(f"{DELTA}in_proj_{theirs}.*", f"{MIXER}{ours}.*") for theirs, ours in parts.items()),
    )
    return OfBlock(GatedDeltaNet, projections), *common(axis)


WEIGHTS = (*rules(1), *QWEN_WEIGHTS)
MLX_WEIGHTS = behind("language_model.", (*rules(2), *MLX_NORMS, *QWEN_MLX_WEIGHTS))
DENSE = dict(num_experts=None, num_experts_per_tok=None, norm_topk_prob=None, tie_word_embeddings=True)
DENSE |= dict(moe_intermediate_size=None, shared_expert_intermediate_size=None)
QWEN3_5 = dict(
    **dict(head_dim=256, partial_rotary_factor=0.25, rope_theta=10000000.0, full_attention_interval=4),
    **dict(linear_num_key_heads=16, linear_key_head_dim=128, linear_value_head_dim=128),
    **dict(linear_conv_kernel_dim=4, vocab_size=248320, max_position_embeddings=262144),
)
REFERENCES = (
    'Qwen Team, 2026, "Qwen3.5: Towards Native Multimodal Agents"',
    "Yang et al., 2024, arXiv:2412.06464",
)


def small(config):
    """The numbers that are given."""
    return {key: value for key, value in config.items() if value is not None}


@hookimpl
def zoo_architectures():
    yield Architecture(
        name="qwen3.5",
        base="qwen3-next",
        summary="Qwen3-Next with a feed-forward in the place of experts",
        model_types=("qwen3_5_text",),
        text_of=("qwen3_5",),
        mlx_type="qwen3_5",
        recipe=qwen3_5,
        weights=WEIGHTS,
        mlx_weights=MLX_WEIGHTS,
        presets=(
            published(
                "9b",
                "Qwen/Qwen3.5-9B",
                "Apache-2.0",
                **sized(layers=32, dim=4096, heads=16, kv_heads=4, hidden=12288),
                **QWEN3_5,
                linear_num_value_heads=32,
            ),
            published(
                "27b",
                "Qwen/Qwen3.5-27B",
                "Apache-2.0",
                **sized(layers=64, dim=5120, heads=24, kv_heads=4, hidden=17408),
                **QWEN3_5,
                linear_num_value_heads=48,
            ),
            Preset("pocket", config=small(POCKET | DENSE) | dict(intermediate_size=448)),
            Preset("tiny", config=small(TINY | DENSE)),
        ),
        references=REFERENCES,
        published="2026-02",
        prediction=prediction("qwen3.5", qwen3_5, WEIGHTS),
    )
    yield Architecture(
        name="qwen3.5-moe",
        base="qwen3-next",
        summary="Qwen3-Next with 256 experts, eight of them used by each token",
        model_types=("qwen3_5_moe_text",),
        text_of=("qwen3_5_moe",),
        mlx_type="qwen3_5_moe",
        recipe=qwen3_5_moe,
        weights=WEIGHTS,
        mlx_weights=MLX_WEIGHTS,
        presets=(
            published(
                "35b-a3b",
                "Qwen/Qwen3.5-35B-A3B",
                "Apache-2.0",
                **sized(layers=40, dim=2048, heads=16, kv_heads=2, hidden=512),
                **QWEN3_5,
                **dict(linear_num_value_heads=32, num_experts=256, num_experts_per_tok=8),
                **dict(moe_intermediate_size=512, shared_expert_intermediate_size=512),
            ),
            Preset("pocket", config=POCKET),
            Preset("tiny", config=TINY),
        ),
        references=REFERENCES,
        published="2026-02",
        prediction=prediction("qwen3.5-moe", qwen3_5_moe, WEIGHTS),
    )
