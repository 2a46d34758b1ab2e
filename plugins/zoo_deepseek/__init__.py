"""DeepSeek-V3: latent attention, many small experts and a shared one. Imports no mlx."""

import math

from zoo.architecture import (
    GGUF,
    Architecture,
    Block,
    Drawing,
    FactSource,
    ModuleProbe,
    Preset,
    hookimpl,
    pocket,
)
from zoo.recipe import Decoder, Embedding, Experts, GatedMLP, Head, Layer, MoE, RMSNorm, RoPE
from zoo_deepseek.rules import (
    GGUF_KEYS,
    GGUF_WEIGHTS,
    MLX_WEIGHTS,
    PREDICTION_WEIGHTS,
    WEIGHTS,
    config_of_gguf,
)
from zoo_deepseek.spec import GroupRouter, LatentAttention, PredictionLayer, SigmoidRouter
from zoo_llama import POCKET as LLAMA_POCKET
from zoo_llama import sized

# What these say is bookkeeping of training and of layers that are not run, or computed from other keys.
UNUSED = (
    "aux_loss_alpha",
    "seq_aux",
    "ep_size",
    "num_nextn_predict_layers",
    "num_mtp_layers",
    "head_dim",
    "qk_head_dim",
    "attention_dropout",
    "pretraining_tp",
    "output_router_logits",
    "router_aux_loss_coef",
)


def deepseek_v3(config):
    """Latent attention; a few dense layers, then mixtures of experts (DeepSeek-AI, 2024)."""
    return decoder(config, moe(config, config.activation("hidden_act", "silu")))


def decoder(config, experts, rope=None):
    """Latent attention with `experts` in all layers but the first; `rope` where a family reads its positions otherwise."""
    config.ignore(*UNUSED)
    layer = layers_of(config, experts, rope)
    return Decoder(
        embedding=Embedding(vocab=config.count("vocab_size"), dim=config.count("hidden_size")),
        layers=tuple(layer(index) for index in range(config.layers())),
        norm=RMSNorm(eps=config.number("rms_norm_eps", 1e-6)),
        head=Head(tied=config.flag("tie_word_embeddings", False)),
        context=config.count("max_position_embeddings", 4096),
    )


def dense_first(config):
    """The config with its list `mlp_layer_types` as the number of dense layers before those with experts."""
    types = config.choices("mlp_layer_types", ("dense", "sparse"), config.layers(), None)
    if types is None:
        return config
    first = types.count("dense")
    if "dense" in types[first:]:
        raise config.error("mlp_layer_types", "is not implemented but with all dense layers first")
    config.ignore("first_k_dense_replace")
    return config.replaced(first_k_dense_replace=first)


def layers_of(config, experts, rope=None):
    """The function from a layer's index to its spec: dense at first, then with a mixture of experts."""
    norm, attention = RMSNorm(eps=config.number("rms_norm_eps", 1e-6)), latent_attention(config, rope)
    activation = config.activation("hidden_act", "silu")
    dense = GatedMLP(hidden=config.count("intermediate_size"), activation=activation)
    first = config.count("first_k_dense_replace", 3, least=0)
    every = config.count("moe_layer_freq", 1)

    def layer(index):
        sparse = index >= first and index % every == 0
        return Layer(
            mixer_norm=norm,
            mixer=attention,
            feedforward_norm=norm,
            feedforward=experts if sparse else dense,
        )

    return layer


def latent_attention(config, rope=None):
    """The attention of every layer. Its own norms have an eps of 1e-6 whatever rms_norm_eps says."""
    heads = config.count("num_attention_heads")
    if config.count("num_key_value_heads", heads) != heads:
        raise config.error(
            "num_key_value_heads", f"must equal num_attention_heads, {heads}: latents are shared"
        )
    nope_dim, rope_dim = config.count("qk_nope_head_dim", 128), config.count("qk_rope_head_dim", 64)
    if rope_dim % 2:
        raise config.error("qk_rope_head_dim", "must be even: dimensions are turned in pairs")
    rope = rope or RoPE.of(config, rope_dim)
    if rope.dims is not None:
        raise config.error(
            "partial_rotary_factor", "is not implemented: qk_rope_head_dim says what is turned"
        )
    query_rank = None if config.is_null("q_lora_rank") else config.count("q_lora_rank", 1536)
    norm = RMSNorm(eps=1e-6)
    return LatentAttention(
        heads=heads,
        kv_rank=config.count("kv_lora_rank", 512),
        nope_dim=nope_dim,
        rope_dim=rope_dim,
        value_dim=config.count("v_head_dim", 128),
        kv_norm=norm,
        rope=rope.change(interleaved=config.flag("rope_interleave", True)),
        query_rank=query_rank,
        query_norm=None if query_rank is None else norm,
        bias=config.flag("attention_bias", False),
        scale=(nope_dim + rope_dim) ** -0.5 * sharpness(config, rope) ** 2,
    )


def sharpness(config, rope):
    """The factor of queries and of keys under YaRN's `mscale_all_dim`, which is applied to whole scores here."""
    scaling = config.nested("rope_scaling") or config.nested("rope_parameters")
    weight = scaling.number("mscale_all_dim", 0.0) if scaling else 0.0
    if rope.scaling is None or rope.scaling.factor <= 1:
        return 1.0
    return 0.1 * weight * math.log(rope.scaling.factor) + 1.0


def moe(config, activation):
    """The experts of a sparse layer and the router between them."""
    config.choice("scoring_func", ("sigmoid",), "sigmoid")
    config.choice("topk_method", ("noaux_tc",), "noaux_tc")
    count = config.count("n_routed_experts", 256)
    groups, kept, top_k = router_numbers(config, count)
    router = SigmoidRouter(
        experts=count,
        top_k=top_k,
        normalised=config.flag("norm_topk_prob", True),
        scale=config.number("routed_scaling_factor", 2.5),
    )
    if groups > 1:
        router = GroupRouter(**vars(router), groups=groups, top_k_groups=kept)
    return mixture(config, activation, router)


def mixture(config, activation, router):
    """The experts between which a router chooses, and the shared ones."""
    count, hidden = router.experts, config.count("moe_intermediate_size", 2048)
    shared = 0 if config.is_null("n_shared_experts") else config.count("n_shared_experts", 1, least=0)
    return MoE(
        router=router,
        experts=Experts(count=count, hidden=hidden, activation=activation),
        shared=GatedMLP(hidden=hidden * shared, activation=activation) if shared else None,
    )


def router_numbers(config, experts):
    """Groups, groups kept and experts kept, which must be possible with so many experts."""
    groups = config.count("n_group", 8)
    if experts % groups or (groups > 1 and experts < 2 * groups):
        raise config.error("n_group", f"must divide n_routed_experts, {experts}, into groups of two at least")
    kept = config.count("topk_group", 4)
    if kept > groups:
        raise config.error("topk_group", f"is more than n_group, {groups}")
    top_k, within = config.count("num_experts_per_tok", 8), experts // groups * kept
    if top_k > within:
        raise config.error("num_experts_per_tok", f"is more than the {within} experts of topk_group groups")
    return groups, kept, top_k


def prediction(name, recipe, weights):
    """The prediction layer of a family whose checkpoints hold it after the model's last layer.

    `recipe` and `weights` are the family's. The first rule of `weights`, which leaves the layer out, is not used.
    """

    def layer(config):
        model = recipe(config)
        index, key = len(model.layers), "num_nextn_predict_layers"
        if config.count(key, 0, least=0) < 1:
            raise config.error(key, "says that there is no layer for the token after the next")
        if not config.has_tensor(f"layers.{index}.eh_proj.", default=True):
            raise config.error(key, f"is more than the files hold: they have no layers.{index}.eh_proj")
        return prediction_layer(model, model.layers[-1])

    return prediction_record(name, layer, (*PREDICTION_WEIGHTS, *weights[1:]))


def prediction_record(name, recipe, weights):
    """The architecture record of the prediction layer of the family `name`: it predicts the token after the next."""
    summary = f"the layer of {name} for the token after the next"
    return Architecture(name=f"{name}-prediction", summary=summary, recipe=recipe, weights=weights)


def prediction_layer(model, layer):
    """The recipe of a prediction layer whose mixer and feed-forward are those of `layer`, one of the model's layers."""
    return PredictionLayer(
        dim=model.dim,
        vocab=model.vocab,
        index=len(model.layers),
        embedding_norm=model.norm,
        hidden_norm=model.norm,
        layers=(layer,),
        norm=model.norm,
        context=model.context,
    )


# Under 3 million parameters, 1.2 million of them active for a token.
POCKET = LLAMA_POCKET | dict(
    moe_intermediate_size=96,
    first_k_dense_replace=1,
    num_key_value_heads=4,
    kv_lora_rank=32,
    q_lora_rank=64,
    qk_nope_head_dim=16,
    qk_rope_head_dim=16,
    v_head_dim=32,
    n_routed_experts=16,
    n_shared_experts=1,
    num_experts_per_tok=4,
    n_group=4,
    topk_group=2,
    routed_scaling_factor=1.0,
)
TINY = POCKET | dict(
    hidden_size=64,
    intermediate_size=96,
    moe_intermediate_size=32,
    num_hidden_layers=3,
    n_routed_experts=8,
    num_experts_per_tok=2,
    vocab_size=256,
)
V3 = dict(
    **sized(layers=61, dim=7168, heads=128, kv_heads=128, hidden=18432),
    moe_intermediate_size=2048,
    first_k_dense_replace=3,
    kv_lora_rank=512,
    q_lora_rank=1536,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
    n_routed_experts=256,
    n_shared_experts=1,
    num_experts_per_tok=8,
    n_group=8,
    topk_group=4,
    routed_scaling_factor=2.5,
    max_position_embeddings=163840,
    vocab_size=129280,
    rope_scaling=dict(
        type="yarn",
        factor=40,
        original_max_position_embeddings=4096,
        beta_fast=32,
        beta_slow=1,
        mscale=1.0,
        mscale_all_dim=1.0,
    ),
)
MOONLIGHT = V3 | dict(
    **sized(layers=27, dim=2048, heads=16, kv_heads=16, hidden=11264),
    moe_intermediate_size=1408,
    first_k_dense_replace=1,
    q_lora_rank=None,
    n_routed_experts=64,
    n_shared_experts=2,
    num_experts_per_tok=6,
    n_group=1,
    topk_group=1,
    routed_scaling_factor=2.446,
    max_position_embeddings=8192,
    vocab_size=163840,
    rms_norm_eps=1e-5,
    rope_theta=50000.0,
    rope_scaling=None,
)

KIMI_K2 = V3 | dict(
    num_attention_heads=64,
    num_key_value_heads=64,
    first_k_dense_replace=1,
    n_routed_experts=384,
    n_group=1,
    topk_group=1,
    routed_scaling_factor=2.827,
    max_position_embeddings=131072,
    vocab_size=163840,
    rope_theta=50000.0,
    rope_scaling=V3["rope_scaling"] | dict(factor=32, beta_fast=1, beta_slow=1),
)


@hookimpl
def zoo_blocks():
    """Latent attention and the routers."""
    yield Block(LatentAttention, "zoo_deepseek.block:LatentAttention", "multi-head latent attention (MLA)")
    yield Block(SigmoidRouter, "zoo_deepseek.block:SigmoidRouter", "top-k router over sigmoids")
    yield Block(GroupRouter, "zoo_deepseek.block:GroupRouter", "group-limited top-k router over sigmoids")
    yield Block(PredictionLayer, "zoo_deepseek.block:PredictionLayer", "layer for the token after the next")


@hookimpl
def zoo_facts():
    """The memory that latents save."""
    yield FactSource("latent", "zoo_deepseek.spec:expanded_cache", "what the cache would be without latents")


@hookimpl
def zoo_drawings():
    yield Drawing(LatentAttention, "zoo_deepseek.drawing:latent_attention")
    yield Drawing(SigmoidRouter, "zoo_deepseek.drawing:sigmoid_router")
    yield Drawing(GroupRouter, "zoo_deepseek.drawing:group_router")


@hookimpl
def zoo_architectures():
    """DeepSeek-V3, R1, Kimi K2 and Moonlight."""
    yield Architecture(
        name="deepseek-v3",
        base="llama",
        summary="latent attention with a compressed cache, many small experts, a shared one",
        model_types=("deepseek_v3", "kimi_k2"),
        text_of=("kimi_k25",),
        recipe=deepseek_v3,
        weights=WEIGHTS,
        mlx_weights=MLX_WEIGHTS,
        gguf=GGUF("deepseek2", GGUF_WEIGHTS, keys=GGUF_KEYS, config=config_of_gguf),
        presets=(
            pocket(__file__, "deepseek-v3", **POCKET),
            Preset("671b", hub="deepseek-ai/DeepSeek-V3", config=V3, licence="DeepSeek Model License"),
            Preset(
                "r1", hub="deepseek-ai/DeepSeek-R1", config=V3, licence="MIT", aliases=("deepseek-r1:671b",)
            ),
            Preset("moonlight-16b", hub="moonshotai/Moonlight-16B-A3B", config=MOONLIGHT, licence="MIT"),
            Preset(
                "kimi-k2",
                hub="moonshotai/Kimi-K2-Instruct",
                config=KIMI_K2,
                licence="Modified MIT License",
                aliases=("kimi-k2",),
            ),
            Preset("tiny", config=TINY),
        ),
        references=(
            "DeepSeek-AI, 2024, arXiv:2412.19437",
            "DeepSeek-AI, 2024, arXiv:2405.04434",
            "Kimi Team, 2025, arXiv:2507.20534",
        ),
        published="2024-12",
        prediction=prediction("deepseek-v3", deepseek_v3, WEIGHTS),
    )


@hookimpl
def zoo_probes():
    yield ModuleProbe("zoo_deepseek.block:LatentAttention", "zoo_deepseek.probe:LatentAttentionProbe")
    for router in ("SigmoidRouter", "GroupRouter"):
        yield ModuleProbe(f"zoo_deepseek.block:{router}", "zoo_deepseek.probe:SigmoidRouterProbe")
