"""Kimi Linear: three of four layers have Kimi Delta Attention, the fourth has latent attention without RoPE. Imports no mlx."""

from zoo.architecture import Architecture, Block, Depthwise, Drawing, ModuleProbe, Preset, Rename, hookimpl
from zoo.weights.experts import expert_rules
from zoo_deepseek import POCKET as V3_POCKET
from zoo_deepseek import TINY as V3_TINY
from zoo_deepseek import decoder, dense_first, moe
from zoo_deepseek.rules import LAYER
from zoo_deepseek.rules import MLX_WEIGHTS as V3_MLX_WEIGHTS
from zoo_deepseek.rules import WEIGHTS as V3_WEIGHTS
from zoo_kimi_linear.specs import Flat, KimiDeltaNet, OfMixer, ThreeConvolutions
from zoo_llama import published, sized

FULL, LINEAR = "full_attention", "linear_attention"
NAMES = dict(
    **dict(num_experts="n_routed_experts", num_local_experts="n_routed_experts"),
    **dict(num_experts_per_token="num_experts_per_tok", num_shared_experts="n_shared_experts"),
    **dict(moe_renormalize="norm_topk_prob", num_expert_group="n_group"),
    **dict(model_max_length="max_position_embeddings", moe_router_activation_func="scoring_func"),
)


def kimi_linear(config):
    """DeepSeek-V3 without positions, most of whose layers keep a state in the place of latents (Kimi Team, 2025)."""
    config.ignore("use_grouped_topk")  # of one group
    config.refuse("mla_use_nope", False)
    config = dense_first(config.renamed(NAMES)).with_defaults(
        **dict(q_lora_rank=None, rms_norm_eps=1e-5, max_position_embeddings=1048576, n_group=1, topk_group=1),
        **dict(moe_intermediate_size=1024, routed_scaling_factor=2.446, first_k_dense_replace=1),
    )
    types, delta = mixers(config)
    model = decoder(config, moe(config, config.activation("hidden_act", "silu")))
    return model.change_layers(
        lambda index, layer: dict(
            mixer=delta if types[index] == LINEAR else layer.mixer.change(rope=None, scale=None)
        )
    )


def mixers(config):
    """The type of each layer, and the mixer of those without attention."""
    count, own = config.layers(), config.nested("linear_attn_config")
    default = [FULL if index and index % 4 == 0 else LINEAR for index in range(count)]
    if own:
        config = config.with_defaults(**{key: own[name] for key, name in KEYS.items() if name in own})
        full, rest = (own.get(key, None) for key in ("full_attn_layers", "kda_layers"))  # counted from one
        if full is not None and rest is not None:
            if sorted([*full, *rest]) != list(range(1, count + 1)):
                raise own.error("kda_layers", "must name with full_attn_layers every layer once")
            default = [FULL if index + 1 in full else LINEAR for index in range(count)]
    heads, width = config.count("linear_num_heads", 32), config.count("linear_head_dim", 128)
    return config.choices("layer_types", (FULL, LINEAR), count, default), KimiDeltaNet(
        heads=heads,
        key_heads=heads,
        key_dim=width,
        value_dim=width,
        kernel=config.count("linear_conv_kernel_dim", 4),
        activation=config.activation("hidden_act", "silu"),
        eps=config.number("rms_norm_eps"),
    )


KEYS = dict(linear_num_heads="num_heads", linear_head_dim="head_dim")
KEYS |= dict(linear_conv_kernel_dim="short_conv_kernel_size")
DELTA, MIXER, FFN = LAYER + "self_attn.", "layers.{i}.mixer.", "layers.{i}.feedforward."
PROJECTIONS = dict(
    **dict(q_proj="q", k_proj="k", v_proj="v", b_proj="beta", f_a_proj="alpha_down", f_b_proj="alpha"),
    **dict(g_a_proj="z_down", g_b_proj="z", o_proj="output"),
)

HELD, HELD_PARTS = DELTA + "forget_gate.", (("a", "alpha_down"), ("b", "alpha"))


def rules(convolution, axis):
    """The tensors of a layer without attention; its convolutions stand at `convolution`, their one input channel at `axis`."""
    return OfMixer(
        KimiDeltaNet,
        (
            *(Rename(f"{DELTA}{theirs}.*", f"{MIXER}{ours}.*") for theirs, ours in PROJECTIONS.items()),
            ThreeConvolutions(DELTA + convolution, MIXER + "convolution.weight", axis),
            Flat(DELTA + "A_log", MIXER + "A_log"),
            Rename(DELTA + "dt_bias", MIXER + "dt_bias"),
            Rename(DELTA + "o_norm.weight", MIXER + "gain"),
            # As transformers 5 holds them.
            *(Rename(f"{HELD}f_{low}_proj.*", f"{MIXER}{name}.*") for low, name in HELD_PARTS),
            Flat(HELD + "A_log", MIXER + "A_log"),
            Rename(HELD + "dt_bias", MIXER + "dt_bias"),
            Depthwise(DELTA + "conv1d.weight", MIXER + "convolution.weight"),
        ),
    )


SPARSE = LAYER + "block_sparse_moe."
WEIGHTS = (
    V3_WEIGHTS[0],
    rules("{part}_conv1d.weight", 1),
    Rename(SPARSE + "gate.weight", FFN + "router.weight"),
    Rename(SPARSE + "gate.e_score_correction_bias", FFN + "router.correction_bias"),
    Rename(SPARSE + "shared_experts.{p}_proj.*", FFN + "shared.{p}.*"),
    *expert_rules(SPARSE, FFN + "experts.", ("w1", "w3", "w2"), LAYER + "mlp."),
    *V3_WEIGHTS[1:],
    Rename(SPARSE + "{p}_proj.*", FFN + "{p}.*"),  # dense layers, as transformers writes them
)
MLX_WEIGHTS = (
    rules("{part}_conv.conv.weight", 2),
    Rename(LAYER + "mlp.e_score_correction_bias", FFN + "router.correction_bias"),
    *V3_MLX_WEIGHTS,
)
SMALL = dict(q_lora_rank=None, n_group=1, topk_group=1, layer_types=[LINEAR, FULL] * 2)
SMALL |= dict(linear_num_heads=4, linear_head_dim=16, num_hidden_layers=4)
FULL_LAYERS = [4, 8, 12, 16, 20, 24, 27]


@hookimpl
def zoo_blocks():
    yield Block(KimiDeltaNet, "zoo_kimi_linear.block:KimiDeltaNet", "Kimi Delta Attention (KDA)")


@hookimpl
def zoo_drawings():
    yield Drawing(KimiDeltaNet, "zoo_qwen3_next.drawing:gated_delta_net")


@hookimpl
def zoo_probes():
    yield ModuleProbe("zoo_kimi_linear.block:KimiDeltaNet", "zoo_kimi_linear.probe:KimiDeltaNetProbe")


@hookimpl
def zoo_architectures():
    """Kimi Linear."""
    yield Architecture(
        name="kimi-linear",
        base="deepseek-v3",
        summary="Kimi Delta Attention in three layers of four, latent attention without positions in the fourth",
        model_types=("kimi_linear",),
        recipe=kimi_linear,
        weights=WEIGHTS,
        mlx_weights=MLX_WEIGHTS,
        presets=(
            published(
                "48b-a3b",
                "moonshotai/Kimi-Linear-48B-A3B-Instruct",
                "MIT",
                aliases=("kimi-linear",),
                **sized(layers=27, dim=2304, heads=32, kv_heads=32, hidden=9216, rms_norm_eps=1e-5),
                **dict(moe_intermediate_size=1024, num_experts=256, num_experts_per_token=8),
                **dict(num_shared_experts=1, first_k_dense_replace=1, routed_scaling_factor=2.446),
                **dict(kv_lora_rank=512, q_lora_rank=None, qk_nope_head_dim=128, qk_rope_head_dim=64),
                **dict(v_head_dim=128, vocab_size=163840, model_max_length=1048576, mla_use_nope=True),
                linear_attn_config=dict(
                    head_dim=128,
                    num_heads=32,
                    short_conv_kernel_size=4,
                    full_attn_layers=FULL_LAYERS,
                    kda_layers=[n for n in range(1, 28) if n not in FULL_LAYERS],
                ),
            ),
            Preset("pocket", config=V3_POCKET | SMALL),
            Preset("tiny", config=V3_TINY | SMALL),
        ),
        references=("Kimi Team, 2025, arXiv:2510.26692",),
        published="2025-10",
    )
