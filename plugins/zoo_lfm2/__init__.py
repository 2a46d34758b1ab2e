"""LFM2: a gated short convolution in most layers, grouped-query attention in the others. Imports no mlx."""

from zoo.architecture import (
    Architecture,
    Block,
    Depthwise,
    Drawing,
    ModuleProbe,
    OfBlock,
    OutputHead,
    Preset,
    Rename,
    hookimpl,
)
from zoo.recipe import Attention, Decoder, Embedding, Experts, GatedMLP, Head, Layer, MoE, RMSNorm, RoPE
from zoo.weights.experts import expert_rules, mlx_expert_rule
from zoo_deepseek.spec import SigmoidRouter
from zoo_lfm2.specs import ShortConvolution


def lfm2(config):
    """Pre-RMSNorm, SwiGLU; a layer mixes by a short convolution, or by attention with normalised heads (Liquid AI, 2025)."""
    config = config.with_defaults(rope_theta=1e6)
    config.refuse("block_use_swiglu", False)
    config.ignore(*UNUSED)
    dim, heads, bias = (
        config.count("hidden_size"),
        config.count("num_attention_heads"),
        config.flag("conv_bias", False),
    )
    norm = RMSNorm(eps=config.number("norm_eps", 1e-5))
    attention = Attention(
        heads=heads,
        kv_heads=config.kv_heads(8),
        head_dim=config.head_width(),
        rope=RoPE.of(config),
        query_norm=norm,
        key_norm=norm,
    )
    mixers = {"full_attention": attention, "conv": ShortConvolution(config.count("conv_L_cache", 3), bias)}
    feedforward = GatedMLP(hidden=hidden(config))
    tied = config.flag("tie_embedding", config.flag("tie_word_embeddings", True))
    return Decoder(
        embedding=Embedding(vocab=config.count("vocab_size"), dim=dim),
        layers=tuple(Layer(mixers[kind], feedforward, norm, norm) for kind in layer_types(config)),
        norm=norm,
        head=Head(tied=tied),
        context=config.count("max_position_embeddings", 128000),
    )


def lfm2_moe(config):
    """LFM2 whose layers have experts chosen by σ(W x) and a bias, but for the first dense ones (Liquid AI, 2025)."""
    config.ignore("output_router_logits", "router_aux_loss_coef")
    if not config.flag("use_expert_bias", True):
        raise config.error("use_expert_bias", "is not implemented")
    config = config.with_defaults(intermediate_size=7168, block_auto_adjust_ff_dim=False)
    dense, count = config.count("num_dense_layers", 2, least=0), config.count("num_experts", 32)
    router = SigmoidRouter(
        experts=count,
        top_k=config.count("num_experts_per_tok", 4),
        normalised=config.flag("norm_topk_prob", True),
        scale=config.number("routed_scaling_factor", 1.0),
    )
    sparse = MoE(router=router, experts=Experts(count, hidden=config.count("moe_intermediate_size", 1792)))
    return lfm2(config).change_layers(
        lambda index, layer: dict(feedforward=layer.feedforward if index < dense else sparse)
    )


# Of training; and the first release's names of what the other keys say too.
UNUSED = (
    *("block_mlp_init_scale", "block_out_init_scale", "block_use_xavier_init", "conv_use_xavier_init"),
    *("block_dim", "block_norm_eps", "conv_dim", "conv_dim_out", "num_heads", "theta", "use_pos_enc"),
)


def layer_types(config):
    """What mixes tokens in each layer: `layer_types` says it, else `full_attn_idxs`, the numbers of those with attention."""
    count = config.layers()
    attending = config.get("full_attn_idxs", list(range(count)))
    if not isinstance(attending, list) or any(type(index) is not int for index in attending):
        raise config.error("full_attn_idxs", "must be a list of layer numbers")
    default = ["full_attention" if index in attending else "conv" for index in range(count)]
    types = config.choices("layer_types", ("full_attention", "conv"), count, default)
    config.note("full_attn_idxs", [index for index, kind in enumerate(types) if kind == "full_attention"])
    return types


def hidden(config):
    """The feed-forward's width: two thirds of what the config says, times a factor, rounded up; or just what it says."""
    width = config.count("block_ff_dim", config.count("intermediate_size", 12288))
    factor, unit = config.number("block_ffn_dim_multiplier", 1.0), config.count("block_multiple_of", 256)
    if not config.flag("block_auto_adjust_ff_dim", True):
        return width
    return -(-int(factor * int(2 * width / 3)) // unit) * unit


LAYER, MIXER = "model.layers.{i}.", "layers.{i}.mixer."
CONVOLUTION = {
    "conv.in_proj.*": "mixer.input.*",
    "conv.conv.bias": "mixer.convolution.bias",
    "conv.out_proj.*": "mixer.output.*",
}
NAMES = {
    **{
        f"self_attn.{part}_proj.*": f"mixer.{name}.*"
        for part, name in (("q", "query"), ("k", "key"), ("v", "value"))
    },
    "self_attn.out_proj.*": "mixer.output.*",
    "self_attn.q_layernorm.*": "mixer.query_norm.*",
    "self_attn.k_layernorm.*": "mixer.key_norm.*",
    "operator_norm.*": "mixer_norm.*",
    "ffn_norm.*": "feedforward_norm.*",
}
FEEDFORWARD = {
    "feed_forward.w1.*": "feedforward.gate.*",
    "feed_forward.w2.*": "feedforward.down.*",
    "feed_forward.w3.*": "feedforward.up.*",
}
ROUTER = {
    "feed_forward.gate.weight": "feedforward.router.weight",
    "feed_forward.expert_bias": "feedforward.router.correction_bias",
}


def renamed(names):
    """The rules of a layer's names."""
    return tuple(Rename(LAYER + theirs, "layers.{i}." + ours) for theirs, ours in names.items())


def weights(convolution_axis, feedforward=FEEDFORWARD):
    """The rules of both layouts: they differ in where the convolution's one input channel stands."""
    depthwise = Depthwise(LAYER + "conv.conv.weight", MIXER + "convolution.weight", axis=convolution_axis)
    return (
        Rename("model.embed_tokens.*", "embedding.tokens.*"),
        Rename("model.embedding_norm.*", "norm.*"),
        OfBlock(ShortConvolution, (depthwise, *renamed(CONVOLUTION))),
        *renamed(NAMES | feedforward),
        OutputHead("lm_head.*", "head.output.*"),
    )


SPARSE, EXPERTS = LAYER + "feed_forward.", "layers.{i}.feedforward.experts."
MOE_WEIGHTS = (*weights(1, ROUTER | FEEDFORWARD), *expert_rules(SPARSE, EXPERTS, ("w1", "w3", "w2")))
MOE_MLX_WEIGHTS = (
    *weights(2, ROUTER | {f"feed_forward.{p}_proj.*": f"feedforward.{p}.*" for p in ("gate", "up", "down")}),
    mlx_expert_rule(SPARSE, EXPERTS),
)


def sized(layers, dim, heads, hidden, attending=(2, 5, 8, 10, 12, 14), **numbers):
    """Sizes as a config.json has them. `attending` are the indices of the layers with attention."""
    return dict(
        hidden_size=dim,
        intermediate_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        layer_types=["full_attention" if index in attending else "conv" for index in range(layers)],
        **numbers,
    )


def published(size, **numbers):
    """A preset with the numbers of one of Liquid AI's checkpoints."""
    config = sized(layers=16, vocab_size=65536, num_key_value_heads=8, **numbers)
    return Preset(size.lower(), hub=f"LiquidAI/LFM2-{size}", config=config, licence="LFM Open License v1.0")


TINY = sized(layers=3, dim=64, heads=4, hidden=128, attending=(1,), vocab_size=256) | dict(
    num_key_value_heads=2, max_position_embeddings=128, block_auto_adjust_ff_dim=False
)
POCKET = TINY | dict(hidden_size=160, intermediate_size=480, vocab_size=2048)
SMALL_MOE = dict(num_dense_layers=1, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=32)


@hookimpl
def zoo_blocks():
    yield Block(ShortConvolution, "zoo_lfm2.block:ShortConvolution", "gated short convolution")


@hookimpl
def zoo_drawings():
    yield Drawing(ShortConvolution, "zoo_lfm2.drawing:short_convolution")


@hookimpl
def zoo_probes():
    yield ModuleProbe("zoo_lfm2.block:ShortConvolution", "zoo_lfm2.probe:ShortConvolutionProbe")


@hookimpl
def zoo_architectures():
    yield Architecture(
        name="lfm2",
        base="llama",
        summary="gated short convolutions, attention with normalised heads in six layers of sixteen",
        model_types=("lfm2",),
        recipe=lfm2,
        weights=weights(1),
        mlx_weights=weights(2),
        presets=(
            published("1.2B", dim=2048, heads=32, hidden=12288),
            published("700M", dim=1536, heads=24, hidden=10240),
            published("350M", dim=1024, heads=16, hidden=6656),
            Preset("pocket", config=POCKET),
            Preset("tiny", config=TINY),
        ),
        references=(
            'Liquid AI, 2025, "Introducing LFM2: The Fastest On-Device Foundation Models on the Market"',
            "Amini et al., 2025, arXiv:2511.23404",
        ),
        published="2025-07",
    )
    yield Architecture(
        name="lfm2-moe",
        base="lfm2",
        summary="LFM2 with thirty-two small experts after two dense layers, chosen by sigmoids and a bias",
        model_types=("lfm2_moe",),
        recipe=lfm2_moe,
        weights=MOE_WEIGHTS,
        mlx_weights=MOE_MLX_WEIGHTS,
        presets=(
            Preset(
                "8b-a1b",
                hub="LiquidAI/LFM2-8B-A1B",
                config=sized(layers=24, dim=2048, heads=32, hidden=7168, attending=(2, 6, 10, 14, 18, 21))
                | dict(vocab_size=65536, num_key_value_heads=8, moe_intermediate_size=1792)
                | dict(
                    num_experts=32, num_experts_per_tok=4, num_dense_layers=2, max_position_embeddings=128000
                ),
                licence="LFM Open License v1.0",
            ),
            Preset("pocket", config=POCKET | SMALL_MOE | dict(num_experts=16, moe_intermediate_size=96)),
            Preset("tiny", config=TINY | SMALL_MOE),
        ),
        references=(
            'Liquid AI, 2025, "LFM2-8B-A1B: An Efficient On-device Mixture-of-Experts"',
            "Amini et al., 2025, arXiv:2511.23404",
        ),
        published="2025-10",
    )
