"""Hunyuan's dense models and those with experts, as a difference from LLaMA, and the attention that only they have. Imports no mlx."""

from zoo.architecture import GGUF, Architecture, Block, Drawing, Preset, Rename, hookimpl
from zoo.frozen import frozen
from zoo.gguf import DECODER
from zoo.recipe import Attention, Experts, GatedMLP, MoE, RMSNorm, RoPE, Router
from zoo.weights.experts import expert_rules, mlx_expert_rule
from zoo_llama import EIGHT_BILLION, POCKET, TINY, llama, published, sized
from zoo_llama import WEIGHTS as LLAMA_WEIGHTS


@frozen()
class LateNormAttention(Attention):
    """Attention that normalises each query and key after it is rotated, where others do so before (Tencent, 2025)."""

    kind, name = "mixer", "late-norm-attention"
    divided = Attention.divided

    @property
    def title(self) -> str:
        """The kind of attention, with where its norms are."""
        return f"{super().title} with norms after rotation"


# Of models with images and experts, whose code they share.
UNUSED = (
    *("add_classification_head", "attention_head_dim", "cla_share_factor", "class_num", "dense_list"),
    *("enable_lm_head_fp32", "eod_token_id", "mask_init_id", "norm_type", "org_vocab_size", "pad_id"),
    *("pool_type", "sep_token_id", "text_end_id", "text_start_id", "use_rotary_pos_emb"),
)


def hunyuan(config):
    """LLaMA with norms on rotated queries and keys, and a base that a constant stretches (Tencent, 2025)."""
    config.ignore(*UNUSED)
    config.refuse("use_cla")
    if not config.flag("use_qk_norm", True):
        raise config.error("use_qk_norm", "is not implemented")
    config = config.with_defaults(rms_norm_eps=1e-5)
    norm, rope = RMSNorm(eps=config.number("rms_norm_eps")), positions(config)
    return llama(config, rope).change_layers(
        lambda index, layer: dict(
            mixer=LateNormAttention(**vars(layer.mixer) | dict(query_norm=norm, key_norm=norm))
        )
    )


def hunyuan_moe(config):
    """The dense models with experts beside a shared one in every layer (Tencent, 2025)."""
    config.ignore(
        "moe_layer_num_skipped", "moe_drop_tokens", "moe_random_routing_dropped_token", "capacity_factor"
    )
    config.ignore("output_router_logits", "num_experts_per_tok", "num_local_experts", "group_limited_greedy")
    config.ignore("num_media_embeds", "topk_group")
    for key, values in dict(
        use_mixed_mlp_moe=[False], norm_topk_prob=[False], use_mla=[], n_group=[]
    ).items():
        config.refuse(key, *values)
    config.refuse("position_embedding_xdrope")
    if config.get("routed_scaling_factor", False) not in (False, 1):
        raise config.error("routed_scaling_factor", "is not implemented")
    hidden, count, top_k = (
        config.count("intermediate_size"),
        config.count("num_experts", 1),
        of_all(config, "moe_topk"),
    )
    if top_k > count:
        raise config.error("moe_topk", f"is more than the {count} experts")
    width, shared = of_all(config, "moe_intermediate_size", hidden), of_all(config, "num_shared_expert")
    activation = config.activation("hidden_act", "silu")
    feedforward = MoE(
        Router(count, top_k), Experts(count, width, activation), GatedMLP(shared * hidden, activation)
    )
    return hunyuan(config).change_layers(feedforward=feedforward)


def of_all(config, key, default=1):
    """A number of all layers, of which a config may have a list."""
    value = config.get(key, default)
    if isinstance(value, list) and value and all(each == value[0] for each in value):
        return config.replaced(**{key: value[0]}).count(key)
    return config.count(key, default)


def positions(config):
    """Rotary positions whose base grows with `alpha`, whatever the length of the text."""
    width = config.count("head_dim", None) or config.head_width()
    factors = []

    def stretched(scaling, config, positions):
        scaling.ignore("factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim")
        factors.append(scaling.number("alpha", least=1, most=1e6) ** (width / (width - 2)))

    rope = RoPE.of(config, width, kinds={"dynamic": stretched})
    return rope.change(theta=rope.theta * factors[0]) if factors else rope


WEIGHTS = (
    Rename("[model.]layers.{i}.self_attn.query_layernorm.*", "layers.{i}.mixer.query_norm.*"),
    Rename("[model.]layers.{i}.self_attn.key_layernorm.*", "layers.{i}.mixer.key_norm.*"),
    *LLAMA_WEIGHTS,
)
LAYER, FEEDFORWARD = "[model.]layers.{i}.mlp.", "layers.{i}.feedforward."
MIXTURE = (
    Rename(LAYER + "gate.wg.*", FEEDFORWARD + "router.scores.*"),
    Rename(LAYER + "shared_mlp.{p}_proj.*", FEEDFORWARD + "shared.{p}.*"),
    *WEIGHTS,
)
MOE_WEIGHTS = (*MIXTURE, *expert_rules(LAYER, FEEDFORWARD + "experts."))
MOE_MLX_WEIGHTS = (*MIXTURE, mlx_expert_rule(LAYER, FEEDFORWARD + "experts."))
SCALING = dict(type="dynamic", alpha=1000.0, factor=1.0)


@hookimpl
def zoo_blocks():
    """The attention, which is all that LLaMA lacks."""
    yield Block(
        LateNormAttention,
        "zoo_hunyuan.block:LateNormAttention",
        "attention with norms on rotated queries and keys",
    )


@hookimpl
def zoo_drawings():
    yield Drawing(LateNormAttention, "zoo_hunyuan.drawing:late_norm_attention")


@hookimpl
def zoo_architectures():
    """Hunyuan's dense models."""
    yield Architecture(
        name="hunyuan-dense",
        base="llama",
        summary="LLaMA with norms on rotated queries and keys",
        model_types=("hunyuan_v1_dense",),
        recipe=hunyuan,
        weights=WEIGHTS,
        gguf=GGUF("hunyuan-dense", DECODER),
        presets=(
            published(
                "7b",
                "tencent/Hunyuan-7B-Instruct",
                **EIGHT_BILLION,
                head_dim=128,
                vocab_size=128167,
                max_position_embeddings=32768,
                rope_theta=10000.0,
                rope_scaling=SCALING,
                tie_word_embeddings=True,
            ),
            Preset("pocket", config=POCKET | dict(head_dim=32, rope_scaling=SCALING)),
            Preset("tiny", config=TINY | dict(head_dim=24, rope_scaling=SCALING)),
        ),
        references=('Tencent, 2025, "Hunyuan-7B"',),
        published="2025-07",
    )
    small = dict(num_experts=6, moe_topk=2, rope_scaling=SCALING)
    yield Architecture(
        name="hunyuan-moe",
        base="hunyuan-dense",
        summary="Hunyuan's dense model with experts beside a shared one in every layer",
        model_types=("hunyuan_v1_moe",),
        recipe=hunyuan_moe,
        weights=MOE_WEIGHTS,
        mlx_weights=MOE_MLX_WEIGHTS,
        presets=(
            published(
                "80b-a13b",
                "tencent/Hunyuan-A13B-Instruct",
                "Tencent Hunyuan A13B License",
                **sized(32, 4096, 32, 8, 3072, head_dim=128, rms_norm_eps=1e-5, num_experts=64, moe_topk=8),
                **dict(vocab_size=128167, max_position_embeddings=32768, tie_word_embeddings=True),
                rope_scaling=SCALING,
            ),
            Preset("pocket", config=POCKET | small | dict(head_dim=32, intermediate_size=128)),
            Preset("tiny", config=TINY | small | dict(head_dim=24, intermediate_size=64)),
        ),
        references=('Tencent, 2025, "Hunyuan-A13B"',),
        published="2025-06",
    )
