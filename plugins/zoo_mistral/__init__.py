"""Ministral 3 and Mistral Small 4: positions of YaRN, and queries that grow with them. Imports no mlx."""

from zoo.architecture import Architecture, Preset, hookimpl
from zoo.recipe import QueryScale, RoPE
from zoo.recipe.rope import KINDS, trained_context
from zoo.weights.experts import stacked_expert_rules
from zoo_deepseek import POCKET as DEEPSEEK_POCKET
from zoo_deepseek import TINY as DEEPSEEK_TINY
from zoo_deepseek import decoder, mixture, router_numbers
from zoo_deepseek.rules import LAYER, MLX_WEIGHTS
from zoo_deepseek.rules import WEIGHTS as DEEPSEEK_WEIGHTS
from zoo_deepseek_v2 import SoftmaxGroupRouter
from zoo_llama import POCKET, TINY, WEIGHTS, llama, published, sized


def positions(config, width):
    """The rotary positions of so many dimensions, and what queries are scaled by, None for nothing."""
    scales = []

    def growing(inner, config, count):
        inner.ignore("max_position_embeddings")  # a copy of the config's
        beta = inner.number("llama_4_scaling_beta", 0.0, least=0, most=100)
        scales.append(QueryScale(beta, trained_context(inner, config, count)) if beta else None)
        return KINDS["yarn"](inner, config, count)

    rope = RoPE.of(config, width, kinds={"yarn": growing})
    return rope, scales[0] if scales else None


def ministral3(config):
    """LLaMA with YaRN. Each query is multiplied by a factor that grows with the logarithm of its position (Mistral AI, 2025)."""
    config = config.with_defaults(rms_norm_eps=1e-5, num_key_value_heads=8, head_dim=128)
    rope, scale = positions(config, config.count("head_dim"))
    window = config.count("sliding_window", None)
    return llama(config, rope).change_layers(mixer=dict(query_scale=scale, window=window))


def mistral4(config):
    """DeepSeek-V3's latents and experts, a softmax between these, and growing queries (Mistral AI, 2026)."""
    config = config.with_defaults(
        **dict(first_k_dense_replace=0, n_group=1, topk_group=1, num_experts_per_tok=4),
        **dict(n_routed_experts=128, routed_scaling_factor=1.0, kv_lora_rank=256, q_lora_rank=1024),
        qk_nope_head_dim=64,
    )
    rotated = config.count("qk_rope_head_dim", 64)
    rope, scale = positions(config, config.count("qk_nope_head_dim") + rotated)
    if rope.dims not in (None, rotated):
        raise config.error("qk_rope_head_dim", f"is not what partial_rotary_factor turns, {rope.dims}")
    count = config.count("n_routed_experts")
    groups, kept, top_k = router_numbers(config, count)
    router = SoftmaxGroupRouter(
        count,
        top_k,
        config.flag("norm_topk_prob", True),
        config.number("routed_scaling_factor"),
        corrects=False,
        groups=groups,
        top_k_groups=kept,
    )
    experts = mixture(config, config.activation("hidden_act", "silu"), router)
    return decoder(config, experts, rope.change(dims=None)).change_layers(mixer=dict(query_scale=scale))


EXPERTS = LAYER + "mlp.experts."
WEIGHTS4 = (
    *stacked_expert_rules(EXPERTS + "gate_up_proj", EXPERTS + "down_proj", "layers.{i}.feedforward.experts."),
    *DEEPSEEK_WEIGHTS,
)
SCALED = dict(rope_type="yarn", rope_theta=1e6, factor=16.0, original_max_position_embeddings=16384)
SCALED |= dict(beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1)
SMALL = dict(rope_parameters=SCALED | dict(factor=4.0, original_max_position_embeddings=32))
SMALL4 = SMALL | dict(n_group=1, topk_group=1, norm_topk_prob=True)


def ministral(size, layers, dim, hidden, **numbers):
    """The preset of Ministral 3 of a size."""
    config = sized(layers, dim, 32, 8, hidden, head_dim=128, vocab_size=131072, rms_norm_eps=1e-5) | numbers
    config |= dict(max_position_embeddings=262144)
    hub = f"mistralai/Ministral-3-{size.upper()}-Instruct-2512"
    return published(size, hub, "Apache-2.0", aliases=(f"ministral-3:{size}",), **config)


@hookimpl
def zoo_architectures():
    """Ministral 3 and Mistral Small 4."""
    yield Architecture(
        name="ministral3",
        base="llama",
        summary="LLaMA with YaRN, and queries that grow with their position",
        model_types=("ministral3",),
        text_of=("mistral3",),
        mlx_type="mistral3",
        recipe=ministral3,
        weights=WEIGHTS,
        presets=(
            ministral("3b", 26, 3072, 9216, rope_parameters=SCALED, tie_word_embeddings=True),
            ministral("8b", 34, 4096, 14336, rope_parameters=SCALED),
            ministral("14b", 40, 5120, 16384, rope_parameters=SCALED | dict(rope_theta=1e9)),
            Preset("pocket", config=POCKET | SMALL | dict(head_dim=32)),
            Preset("tiny", config=TINY | SMALL | dict(head_dim=16)),
        ),
        references=('Mistral AI, 2025, "Ministral 3"',),
        published="2025-12",
    )
    yield Architecture(
        name="mistral4",
        base="deepseek-v3",
        summary="DeepSeek-V3 whose experts are chosen by a softmax, and whose queries grow with their position",
        model_types=("mistral4",),
        text_of=("mistral3",),
        mlx_type="mistral3",
        recipe=mistral4,
        weights=WEIGHTS4,
        mlx_weights=MLX_WEIGHTS,
        presets=(
            published(
                "119b-a6b",
                "mistralai/Mistral-Small-4-119B-2603",
                "Apache-2.0",
                **sized(36, 4096, 32, 32, 12288, vocab_size=131072, max_position_embeddings=1048576),
                **dict(moe_intermediate_size=2048, n_routed_experts=128, num_experts_per_tok=4),
                **dict(kv_lora_rank=256, q_lora_rank=1024, qk_nope_head_dim=64, qk_rope_head_dim=64),
                rope_parameters=SCALED
                | dict(rope_theta=1e4, factor=128.0, original_max_position_embeddings=8192),
            ),
            Preset("pocket", config=DEEPSEEK_POCKET | SMALL4),
            Preset("tiny", config=DEEPSEEK_TINY | SMALL4),
        ),
        references=('Mistral AI, 2026, "Mistral Small 4"',),
        published="2026-03",
    )
