"""Ling, as a difference from LLaMA with DeepSeek-V3's experts. Imports no mlx."""

from zoo.architecture import Architecture, Preset, Rename, Split, hookimpl
from zoo.recipe import GatedMLP, RMSNorm
from zoo_deepseek import mixture, router_numbers
from zoo_deepseek.rules import EXPERTS, LAYER, MIXTURE, MLX_EXPERTS, IgnorePredictionLayers
from zoo_deepseek.spec import GroupRouter
from zoo_deepseek_v2 import SoftmaxGroupRouter
from zoo_llama import POCKET, TINY, llama, published, sized
from zoo_llama import WEIGHTS as LLAMA_WEIGHTS

UNUSED = (
    *("embedding_dropout", "output_dropout", "output_router_logits", "router_dtype"),
    *("num_nextn_predict_layers", "moe_router_enable_routed_scaling", "norm_softmax"),
)


def bailing_moe(config):
    """LLaMA with a norm on each query and key head, and many small experts after dense layers (Ling Team, 2025)."""
    config.ignore(*UNUSED)
    config.refuse("use_bias")
    config.refuse("norm_head")
    config.refuse("use_rmsnorm", False)
    config = config.renamed(dict(num_shared_experts="n_shared_experts", use_qkv_bias="attention_bias"))
    recipe = llama(config.with_defaults(attention_out_bias=False))
    norm = RMSNorm(eps=config.number("rms_norm_eps", 1e-6)) if config.flag("use_qk_norm", False) else None
    rope = recipe.layers[0].mixer.rope
    if (turned := config.count("rotary_dim", None)) is not None:
        rope = rope.change(dims=turned)
    sparse, first = moe(config), config.count("first_k_dense_replace", 0, least=0)
    return recipe.change_layers(
        lambda index, layer: dict(
            mixer=dict(query_norm=norm, key_norm=norm, rope=rope),
            feedforward=sparse if index >= first else layer.feedforward,
        )
    )


def moe(config):
    """The experts, chosen by a softmax or, since Ling 2.0, by sigmoids with groups."""
    count, activation = config.count("num_experts"), config.activation("hidden_act", "silu")
    groups = config.count("n_group", 1)
    groups, kept, top_k = router_numbers(
        config.replaced(n_group=groups, topk_group=1) if groups == 1 else config, count
    )
    config.ignore("topk_group")  # of one group
    numbers = dict(
        experts=count,
        top_k=top_k,
        normalised=top_k > 1 and config.flag("norm_topk_prob", True),
        scale=config.number("routed_scaling_factor", 1.0),
        corrects=config.flag("moe_router_enable_expert_bias", False),
    )
    kind = config.choice("score_function", ("softmax", "sigmoid"), "softmax")
    choice = SoftmaxGroupRouter if kind == "softmax" else GroupRouter
    router = choice(**numbers, groups=groups, top_k_groups=kept)
    experts = mixture(config, activation, router)
    hidden = config.count("moe_shared_expert_intermediate_size", config.count("moe_intermediate_size"))
    if not config.flag("moe_router_enable_shared_expert", True):
        return experts.change(shared=None)
    if experts.shared is None:
        return experts
    return experts.change(shared=GatedMLP(hidden * config.count("n_shared_experts"), activation))


ATTENTION, MIXER = LAYER + "attention.", "layers.{i}.mixer."
SHARED = (
    IgnorePredictionLayers(LAYER),
    Rename("[model.]word_embeddings.*", "embedding.tokens.*"),
    Split(
        ATTENTION + "query_key_value.*",
        (MIXER + "query.*", MIXER + "key.*", MIXER + "value.*"),
        sizes=("heads", "kv_heads", "kv_heads"),
    ),
    Rename(ATTENTION + "dense.*", MIXER + "output.*"),
    Rename(ATTENTION + "{p}_layernorm.*", MIXER + "{p}_norm.*"),
    Rename(LAYER + "mlp.gate.expert_bias", "layers.{i}.feedforward.router.correction_bias"),
)
WEIGHTS = (*SHARED, *MIXTURE, *EXPERTS, *LLAMA_WEIGHTS)
MLX_WEIGHTS = (
    *SHARED,
    Rename(LAYER + "mlp.gate.gate_proj.weight", "layers.{i}.feedforward.router.weight"),
    *MIXTURE,
    MLX_EXPERTS,
    *LLAMA_WEIGHTS,
)
SECOND = dict(
    **dict(score_function="sigmoid", moe_router_enable_expert_bias=True, norm_topk_prob=True),
    **dict(use_qk_norm=True, partial_rotary_factor=0.5, first_k_dense_replace=1, num_shared_experts=1),
)
LING_2 = SECOND | dict(
    **dict(head_dim=128, num_experts=256, num_experts_per_tok=8, n_group=8, topk_group=4),
    **dict(routed_scaling_factor=2.5, vocab_size=157184, max_position_embeddings=32768),
    **dict(rope_theta=600000.0, rms_norm_eps=1e-6),
)
SMALL = SECOND | dict(n_group=2, topk_group=1, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32)


@hookimpl
def zoo_architectures():
    """Ling and Ling 2.0."""
    yield Architecture(
        name="bailing-moe",
        base="llama",
        summary="LLaMA with many small experts after dense layers, norms on queries and keys, half of each head turned",
        model_types=("bailing_moe",),
        recipe=bailing_moe,
        weights=WEIGHTS,
        mlx_weights=MLX_WEIGHTS,
        presets=(
            published(
                "16b-a1.4b",
                "inclusionAI/Ling-mini-2.0",
                "MIT",
                aliases=("ling-mini-2.0",),
                **sized(layers=20, dim=2048, heads=16, kv_heads=4, hidden=5120),
                **LING_2 | dict(moe_intermediate_size=512),
            ),
            published(
                "103b-a6b",
                "inclusionAI/Ling-flash-2.0",
                "MIT",
                aliases=("ling-flash-2.0",),
                **sized(layers=32, dim=4096, heads=32, kv_heads=4, hidden=9216),
                **LING_2 | dict(moe_intermediate_size=1024),
            ),
            Preset("pocket", config=POCKET | SMALL | dict(num_experts=16, moe_intermediate_size=96)),
            Preset("tiny", config=TINY | SMALL),
        ),
        references=("Ling Team, 2025, arXiv:2503.05139", "Ling Team, 2025, arXiv:2510.22115"),
        published="2025-03",
    )
