"""From a config.json to the recipe of DeepSeek-V3. Imports no mlx."""

import math

from zoo.recipe import Decoder, Embedding, Experts, GatedMLP, Head, Layer, MoE, RMSNorm, RoPE
from zoo_deepseek.spec import GroupRouter, LatentAttention

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
    config.ignore(*UNUSED)
    layer = layers_of(config)
    return Decoder(
        embedding=Embedding(vocab=config.count("vocab_size"), dim=config.count("hidden_size")),
        layers=tuple(layer(index) for index in range(config.layers())),
        norm=norm_of(config),
        head=Head(tied=config.flag("tie_word_embeddings", False)),
        context=config.count("max_position_embeddings", 4096),
    )


def norm_of(config):
    """The norm of layers and of the model."""
    return RMSNorm(eps=config.number("rms_norm_eps", 1e-6))


def layers_of(config):
    """The function from a layer's index to its spec: dense at first, then with a mixture of experts."""
    norm, activation = norm_of(config), config.activation("hidden_act", "silu")
    attention = latent_attention(config)
    dense = GatedMLP(hidden=config.count("intermediate_size"), activation=activation)
    experts = moe(config, activation)
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


def latent_attention(config):
    """The attention of every layer. Its own norms have an eps of 1e-6 whatever rms_norm_eps says."""
    heads = config.count("num_attention_heads")
    if config.count("num_key_value_heads", heads) != heads:
        raise config.error(
            "num_key_value_heads", f"must equal num_attention_heads, {heads}: latents are shared"
        )
    nope_dim, rope_dim = config.count("qk_nope_head_dim", 128), config.count("qk_rope_head_dim", 64)
    if rope_dim % 2:
        raise config.error("qk_rope_head_dim", "must be even: dimensions are turned in pairs")
    rope = RoPE.of(config, rope_dim)
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
    count, hidden = config.count("n_routed_experts", 256), config.count("moe_intermediate_size", 2048)
    groups, kept, top_k = router_numbers(config, count)
    shared = 0 if config.is_null("n_shared_experts") else config.count("n_shared_experts", 1, least=0)
    return MoE(
        router=GroupRouter(
            experts=count,
            top_k=top_k,
            groups=groups,
            top_k_groups=kept,
            normalised=config.flag("norm_topk_prob", True),
            scale=config.number("routed_scaling_factor", 2.5),
        ),
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
