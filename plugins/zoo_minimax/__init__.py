"""MiniMax-M2, as a difference from LLaMA with DeepSeek-V3's router, and MiniMax-01. Imports no mlx."""

from zoo.architecture import GGUF, Architecture, Block, Drawing, ModuleProbe, Preset, Rename, hookimpl
from zoo.gguf import DECODER
from zoo.recipe import Experts, JointRMSNorm, MoE, RoPE
from zoo.weights.experts import expert_rules, mlx_expert_rule
from zoo_deepseek import SigmoidRouter
from zoo_deepseek.rules import GGUF_MIXTURE
from zoo_llama import POCKET, TINY, WEIGHTS, llama, published, sized
from zoo_minimax import text01
from zoo_minimax.text01 import LightningAttention, NormedStreamLayer
from zoo_mixtral import MIXTRAL_POCKET, NAMES

# Of training, of layers that are not run, and of the kinds of attention that MiniMax-Text-01 had.
UNUSED = (
    *("output_router_logits", "router_aux_loss_coef", "router_jitter_noise", "num_mtp_modules", "use_mtp"),
    *("mtp_transformer_layers", "attn_type_list", "attn_window_size", "mlp_intermediate_size"),
    *("shared_moe_mode", "sliding_window", "max_model_len"),
    *(f"layernorm_{part}_beta" for part in ("full_attention", "linear_attention", "mlp")),
)


def minimax_m2(config):
    """LLaMA with small experts by σ(W x), and a norm on all queries and one on all keys (MiniMax, 2025)."""
    config.ignore(*UNUSED)
    if config.count("shared_intermediate_size", 0, least=0):
        raise config.error("shared_intermediate_size", "is not implemented")
    for key, known in (("scoring_func", "sigmoid"), ("qk_norm_type", "per_layer")):
        config.choice(key, (known,), known)
    for key in ("use_qk_norm", "use_routing_bias"):
        if not config.flag(key, True):
            raise config.error(key, "is not implemented")
    config = config.with_defaults(
        head_dim=128,
        num_key_value_heads=8,
        max_position_embeddings=196608,
        rope_theta=5000000.0,
        num_local_experts=256,
        num_experts_per_tok=8,
    )
    count, top_k = config.count("num_local_experts"), config.count("num_experts_per_tok")
    if top_k > count:
        raise config.error("num_experts_per_tok", f"is more than the {count} experts")
    recipe = llama(config, rope(config))
    mixer, eps = recipe.layers[0].mixer, config.number("rms_norm_eps", 1e-6)
    feedforward = recipe.layers[0].feedforward
    return recipe.change_layers(
        mixer=dict(
            query_norm=JointRMSNorm(heads=mixer.heads, eps=eps),
            key_norm=JointRMSNorm(heads=mixer.kv_heads, eps=eps),
        ),
        feedforward=MoE(
            router=SigmoidRouter(experts=count, top_k=top_k),
            experts=Experts(count=count, hidden=feedforward.hidden, activation=feedforward.activation),
        ),
    )


def rope(config):
    """The positions: released configs say how many dimensions of a head are turned, others which share."""
    head_dim, dims = config.count("head_dim"), config.count("rotary_dim", None)
    if dims is not None:
        config = config.with_defaults(partial_rotary_factor=dims / head_dim)
    rotation = RoPE.of(config, head_dim)
    config.note("rotary_dim", rotation.dims or head_dim)
    return rotation


LAYER, ROUTER = "[model.]layers.{i}.", "layers.{i}.feedforward.router."
SPARSE, EXPERTS = LAYER + "block_sparse_moe.", "layers.{i}.feedforward.experts."
COMMON = (
    *WEIGHTS,
    Rename(SPARSE + "gate.weight", ROUTER + "weight"),
    Rename(SPARSE + "e_score_correction_bias", ROUTER + "correction_bias"),
)
HF_WEIGHTS = (
    *COMMON,
    # As transformers holds them in memory.
    Rename(LAYER + "mlp.gate.weight", ROUTER + "weight"),
    Rename(LAYER + "mlp.e_score_correction_bias", ROUTER + "correction_bias"),
    *expert_rules(SPARSE, EXPERTS, NAMES, stacked=LAYER + "mlp."),
)
MLX_WEIGHTS = (*COMMON, mlx_expert_rule(SPARSE, EXPERTS))
KEYS = {
    "expert_count": "num_local_experts",
    "expert_feed_forward_length": "intermediate_size",
    "expert_gating_func": "gguf.gating",
}


def scoring_of_gguf(config, tensors):
    """The name of the router's scoring function, which GGUF files give as a number."""
    return dict(scoring_func={2: "sigmoid"}.get(config.get("gguf.gating", 2), config.get("gguf.gating")))


ALPHAS = {f"{name}_alpha_factor": 3.5565588200778455 for name in ("full_attn", "linear_attn", "mlp")}
TEXT01 = dict(
    **sized(layers=80, dim=6144, heads=64, kv_heads=8, hidden=9216, rms_norm_eps=1e-5),
    **dict(head_dim=128, rotary_dim=64, num_local_experts=32, num_experts_per_tok=2),
    **dict(vocab_size=200064, max_position_embeddings=10240000, rope_theta=10000000.0),
    **dict(attn_type_list=[0, 0, 0, 0, 0, 0, 0, 1] * 10, **ALPHAS),
)
SMALL = dict(head_dim=32, rotary_dim=16, attn_type_list=[0, 0, 1, 0]) | ALPHAS


@hookimpl
def zoo_blocks():
    """MiniMax-01's."""
    home = "zoo_minimax.block"
    yield Block(LightningAttention, f"{home}:LightningAttention", "linear attention with states that fade")
    yield Block(NormedStreamLayer, f"{home}:NormedStreamLayer", "a layer with norms before its residual sums")


@hookimpl
def zoo_drawings():
    yield Drawing(LightningAttention, "zoo_minimax.drawing:lightning_attention")
    yield Drawing(NormedStreamLayer, "zoo_minimax.drawing:normed_stream")


@hookimpl
def zoo_probes():
    yield ModuleProbe("zoo_minimax.block:LightningAttention", "zoo_minimax.probe:LightningAttentionProbe")


@hookimpl
def zoo_architectures():
    """MiniMax-M2, and MiniMax-01."""
    yield Architecture(
        name="minimax-m2",
        base="llama",
        summary="LLaMA with many small experts, norms over all queries and all keys, rotary positions on half of each head",
        model_types=("minimax_m2",),
        recipe=minimax_m2,
        weights=HF_WEIGHTS,
        mlx_weights=MLX_WEIGHTS,
        gguf=GGUF("minimax-m2", (*GGUF_MIXTURE, *DECODER), keys=KEYS, config=scoring_of_gguf),
        presets=(
            published(
                "230b-a10b",
                "MiniMaxAI/MiniMax-M2",
                "MIT",
                **sized(layers=62, dim=3072, heads=48, kv_heads=8, hidden=1536),
                head_dim=128,
                rotary_dim=64,
                num_local_experts=256,
                num_experts_per_tok=8,
                vocab_size=200064,
                max_position_embeddings=196608,
                rope_theta=5000000.0,
            ),
            Preset(
                "pocket",
                config=POCKET
                | dict(
                    head_dim=32,
                    rotary_dim=16,
                    intermediate_size=96,
                    num_local_experts=16,
                    num_experts_per_tok=4,
                ),
            ),
            Preset(
                "tiny",
                config=TINY
                | dict(
                    head_dim=16,
                    rotary_dim=8,
                    intermediate_size=32,
                    num_local_experts=6,
                    num_experts_per_tok=2,
                ),
            ),
        ),
        references=('MiniMax, 2025, "MiniMax-M2"',),
        published="2025-10",
    )
    yield Architecture(
        name="minimax",
        base="mixtral",
        summary="Mixtral with lightning attention in seven layers of eight, and norms before the residual sums",
        model_types=("minimax", "minimax_text_01", "minimax_m1"),
        recipe=text01.minimax,
        weights=text01.WEIGHTS,
        mlx_weights=text01.MLX_WEIGHTS,
        presets=(
            published("456b", "MiniMaxAI/MiniMax-Text-01-hf", "MiniMax Model License", **TEXT01),
            published("m1", "MiniMaxAI/MiniMax-M1-80k", "Apache-2.0", **TEXT01),
            Preset("pocket", config=MIXTRAL_POCKET | SMALL),
            Preset(
                "tiny",
                config=TINY
                | SMALL
                | dict(head_dim=16, rotary_dim=8, attn_type_list=[0, 1, 0], num_local_experts=4),
            ),
        ),
        references=("MiniMax, 2025, arXiv:2501.08313", "Qin et al., 2024, arXiv:2401.04658"),
        published="2025-01",
    )
