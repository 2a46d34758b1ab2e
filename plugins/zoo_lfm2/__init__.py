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
from zoo.recipe import Attention, Decoder, Embedding, GatedMLP, Head, Layer, RMSNorm, RoPE
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
    return config.choices("layer_types", ("full_attention", "conv"), count, default)


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
    "feed_forward.w1.*": "feedforward.gate.*",
    "feed_forward.w2.*": "feedforward.down.*",
    "feed_forward.w3.*": "feedforward.up.*",
}


def renamed(names):
    """The rules of a layer's names."""
    return tuple(Rename(LAYER + theirs, "layers.{i}." + ours) for theirs, ours in names.items())


def weights(convolution_axis):
    """The rules of both layouts: they differ in where the convolution's one input channel stands."""
    depthwise = Depthwise(LAYER + "conv.conv.weight", MIXER + "convolution.weight", axis=convolution_axis)
    return (
        Rename("model.embed_tokens.*", "embedding.tokens.*"),
        Rename("model.embedding_norm.*", "norm.*"),
        OfBlock(ShortConvolution, (depthwise, *renamed(CONVOLUTION))),
        *renamed(NAMES),
        OutputHead("lm_head.*", "head.output.*"),
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
