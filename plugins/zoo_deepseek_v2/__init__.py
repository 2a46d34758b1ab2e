"""DeepSeek-V2, as a difference from DeepSeek-V3: a softmax between its experts. Imports no mlx."""

from zoo.architecture import Architecture, Block, Drawing, ModuleProbe, Preset, hookimpl
from zoo.frozen import frozen
from zoo_deepseek import POCKET as V3_POCKET
from zoo_deepseek import TINY as V3_TINY
from zoo_deepseek import V3, decoder, mixture, router_numbers
from zoo_deepseek.rules import KEY_UP, LAYER, MLX_EXPERTS, SHARED_RULES, VALUE_UP, WEIGHTS, SplitHeads
from zoo_deepseek.spec import GroupRouter
from zoo_llama import published, sized


@frozen()
class SoftmaxGroupRouter(GroupRouter):
    """Group-limited top-k: the `top_k` experts of the `top_k_groups` best groups, by softmax(W x) (DeepSeek-V2, 2024).

    A group's score is that of its `best` experts, one in the published models.
    """

    kind, name = "router", "grouped-softmax"


def deepseek_v2(config):
    """DeepSeek-V3 whose router is a softmax, with or without groups (DeepSeek-AI, 2024)."""
    config.refuse("mlp_bias")
    config = config.with_defaults(
        first_k_dense_replace=0,
        n_routed_experts=64,
        n_shared_experts=2,
        moe_intermediate_size=1407,
        routed_scaling_factor=1.0,
        max_position_embeddings=2048,
    )
    model = decoder(config, moe(config, config.activation("hidden_act", "silu")))
    return model.change_layers(mixer=dict(packs_heads=False))


def moe(config, activation):
    """The experts of a sparse layer. The weights of those chosen are the softmax's, which is over all."""
    config.choice("scoring_func", ("softmax",), "softmax")
    config.refuse("norm_topk_prob")
    method = config.choice("topk_method", ("greedy", "group_limited_greedy"), "greedy")
    numbers = config
    if method == "greedy":
        config.ignore("n_group", "topk_group")
        numbers = config.replaced(n_group=1, topk_group=1)
    count = config.count("n_routed_experts")
    groups, kept, top_k = router_numbers(numbers, count)
    scale = config.number("routed_scaling_factor")
    router = SoftmaxGroupRouter(
        count, top_k, normalised=False, scale=scale, corrects=False, groups=groups, top_k_groups=kept, best=1
    )
    return mixture(config, activation, router)


MLX_WEIGHTS = (
    *SHARED_RULES,
    SplitHeads(LAYER + "self_attn.kv_b_proj.weight", KEY_UP, VALUE_UP),
    MLX_EXPERTS,
)
GREEDY = dict(topk_method="greedy", n_group=1, topk_group=1, norm_topk_prob=False, scoring_func="softmax")
GROUPED = GREEDY | dict(topk_method="group_limited_greedy")
V2 = (
    V3
    | GROUPED
    | dict(
        **sized(layers=60, dim=5120, heads=128, kv_heads=128, hidden=12288),
        moe_intermediate_size=1536,
        first_k_dense_replace=1,
        n_routed_experts=160,
        n_shared_experts=2,
        num_experts_per_tok=6,
        n_group=8,
        topk_group=3,
        routed_scaling_factor=16.0,
        vocab_size=102400,
    )
)
LITE = (
    V2
    | GREEDY
    | dict(
        **sized(layers=27, dim=2048, heads=16, kv_heads=16, hidden=10944),
        moe_intermediate_size=1408,
        q_lora_rank=None,
        n_routed_experts=64,
        routed_scaling_factor=1.0,
        rope_scaling=V3["rope_scaling"] | dict(mscale=0.707, mscale_all_dim=0.707),
    )
)


@hookimpl
def zoo_blocks():
    """The router, which is all that DeepSeek-V3 lacks."""
    yield Block(
        SoftmaxGroupRouter,
        "zoo_deepseek_v2.block:SoftmaxGroupRouter",
        "group-limited top-k router over a softmax",
    )


@hookimpl
def zoo_drawings():
    yield Drawing(SoftmaxGroupRouter, "zoo_deepseek_v2.drawing:softmax_group_router")


@hookimpl
def zoo_probes():
    yield ModuleProbe("zoo_deepseek_v2.block:SoftmaxGroupRouter", "zoo_deepseek.probe:SigmoidRouterProbe")


@hookimpl
def zoo_architectures():
    """DeepSeek-V2 and V2-Lite."""
    licence = "DeepSeek Model License"
    yield Architecture(
        name="deepseek-v2",
        base="deepseek-v3",
        summary="DeepSeek-V3 whose experts are chosen by a softmax, without a correction",
        model_types=("deepseek_v2",),
        recipe=deepseek_v2,
        weights=WEIGHTS,
        mlx_weights=MLX_WEIGHTS,
        presets=(
            published("lite", "deepseek-ai/DeepSeek-V2-Lite", licence, **LITE),
            published("236b", "deepseek-ai/DeepSeek-V2", licence, **V2),
            published("coder-lite", "deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct", licence, **LITE),
            Preset("pocket", config=V3_POCKET | GROUPED | dict(n_group=4, topk_group=2)),
            Preset("tiny", config=V3_TINY | GROUPED | dict(n_group=4, topk_group=2)),
        ),
        references=("DeepSeek-AI, 2024, arXiv:2405.04434",),
        published="2024-05",
    )
