"""Mixtral and the Qwen mixtures of experts, as differences from LLaMA. Imports no mlx."""

from zoo.architecture import GGUF, Architecture, Preset, Rename, Stack, hookimpl, pocket
from zoo.gguf import DECODER, MOE, Row
from zoo.recipe import Experts, GatedMLP, MoE, RMSNorm, Router
from zoo.weights.experts import expert_rules, mlx_expert_rule
from zoo_llama import (
    EIGHT_BILLION,
    LLAMA_GGUF,
    POCKET,
    TINY,
    WEIGHTS,
    layer_windows,
    llama,
    published,
    sized,
    sliding_window,
)


def mixtral(config):
    """LLaMA with a few SwiGLU feed-forwards a layer, of which each token uses two (Jiang et al., 2024)."""
    config = config.with_defaults(
        num_key_value_heads=8,
        num_local_experts=8,
        num_experts_per_tok=2,
        rms_norm_eps=1e-5,
        rope_theta=1e6,
        max_position_embeddings=131072,
    )
    feedforward = moe(config, config.count("num_local_experts"), config.count("intermediate_size"))
    window = config.count("sliding_window", None)
    return llama(config).change_layers(mixer=dict(window=window), feedforward=feedforward)


def qwen2_moe(config):
    """LLaMA with biases on queries, keys and values, small experts and a gated shared one (Qwen, 2024)."""
    config = config.with_defaults(
        num_key_value_heads=16,
        num_experts=60,
        num_experts_per_tok=4,
        moe_intermediate_size=1408,
        shared_expert_intermediate_size=5632,
        max_position_embeddings=32768,
    )
    sliding = config.flag("use_sliding_window", False)
    below = config.count("max_window_layers", 28, least=0) if sliding else 0
    kinds = ["full_attention" if i % 2 or i >= below else "sliding_attention" for i in range(config.layers())]
    windows = layer_windows(config.with_defaults(layer_types=kinds))
    bias = config.flag("qkv_bias", True)
    shared = GatedMLP(
        hidden=config.count("shared_expert_intermediate_size"),
        activation=config.activation("hidden_act", "silu"),
    )
    sparse = qwen_moe(config, config.count("num_experts", least=0), shared=shared, shared_gate=True)
    return llama(config).change_layers(
        lambda index, layer: dict(
            mixer=dict(bias=bias, output_bias=False, window=windows[index]),
            feedforward=sparse.get(index, layer.feedforward),
        )
    )


def qwen3_moe(config):
    """LLaMA with a norm on each query and key head, and many small experts (Qwen, 2025)."""
    config = config.with_defaults(
        num_key_value_heads=4,
        num_experts_per_tok=8,
        moe_intermediate_size=768,
        max_position_embeddings=32768,
    )
    # transformers 5 writes the second name; published configs have the first.
    count = config.count("num_experts", config.count("num_local_experts", 128, least=0), least=0)
    sparse = qwen_moe(config, count)
    window = sliding_window(config) if config.flag("use_sliding_window", False) else None
    config.ignore("max_window_layers")  # it stands in configs, but every layer has the window
    norm = RMSNorm(eps=config.number("rms_norm_eps", 1e-6))
    return llama(config).change_layers(
        lambda index, layer: dict(
            mixer=dict(query_norm=norm, key_norm=norm, window=window),
            feedforward=sparse.get(index, layer.feedforward),
        )
    )


def moe(config, count, hidden, normalised=True):
    """A mixture of `count` gated experts of width `hidden`."""
    config.ignore("output_router_logits", "router_aux_loss_coef", "router_jitter_noise")  # of training
    top_k = config.count("num_experts_per_tok")
    if top_k > count:
        raise config.error("num_experts_per_tok", f"is more than the {count} experts")
    return MoE(
        router=Router(experts=count, top_k=top_k, normalised=normalised),
        experts=Experts(count=count, hidden=hidden, activation=config.activation("hidden_act", "silu")),
    )


def qwen_moe(config, count, **shared):
    """The layers' mixtures by their numbers, whose weights need not sum to one; none when there are no experts at all.

    Every `decoder_sparse_step`-th layer has one, those of `mlp_only_layers` left out. `shared` says its shared expert.
    """
    config.ignore("sliding_window")  # a published config has one even where use_sliding_window is false
    hidden, normalised = config.count("moe_intermediate_size"), config.flag("norm_topk_prob", False)
    config.ignore("output_router_logits", "router_aux_loss_coef")
    if not count:
        return {}
    mixture = moe(config, count, hidden, normalised).change(**shared)
    step, dense = config.count("decoder_sparse_step", 1), config.get("mlp_only_layers", [])
    if not isinstance(dense, list) or any(type(index) is not int for index in dense):
        raise config.error("mlp_only_layers", "must be a list of layer numbers")
    sparse = (index for index in range(config.layers()) if (index + 1) % step == 0 and index not in dense)
    return dict.fromkeys(sparse, mixture)


LAYER = "[model.]layers.{i}."
EXPERTS = "layers.{i}.feedforward.experts."
SPARSE, NAMES = LAYER + "block_sparse_moe.", ("w1", "w3", "w2")  # those of gate, up and down

MIXTRAL_WEIGHTS = (
    *WEIGHTS,
    Rename(SPARSE + "gate.*", "layers.{i}.feedforward.router.scores.*"),
    Rename(LAYER + "mlp.gate.*", "layers.{i}.feedforward.router.scores.*"),  # as transformers holds it
    *expert_rules(SPARSE, EXPERTS, NAMES, stacked=LAYER + "mlp."),
)
MIXTRAL_MLX_WEIGHTS = (
    *WEIGHTS,
    Rename(SPARSE + "gate.*", "layers.{i}.feedforward.router.scores.*"),
    mlx_expert_rule(SPARSE, EXPERTS),
)
QWEN_COMMON = (
    *WEIGHTS,
    Rename(LAYER + "mlp.gate.*", "layers.{i}.feedforward.router.scores.*"),
    Rename(LAYER + "mlp.shared_expert.{p}_proj.*", "layers.{i}.feedforward.shared.{p}.*"),
    Rename(LAYER + "mlp.shared_expert_gate.*", "layers.{i}.feedforward.shared_gate.*"),
)
QWEN_WEIGHTS = (*QWEN_COMMON, *expert_rules(LAYER + "mlp.", EXPERTS))
QWEN_MLX_WEIGHTS = (*QWEN_COMMON, mlx_expert_rule(LAYER + "mlp.", EXPERTS))

MIXTRAL_GGUF = GGUF(
    "llama",
    (
        Stack("blk.{i}.ffn_{p}.{e}.weight", EXPERTS + "{p}.weight"),  # files of 2023
        *MOE,
        *LLAMA_GGUF,
    ),
    when="expert_count",
    keys={"expert_count": "num_local_experts"},
)
QWEN3_GGUF = GGUF(
    "qwen3moe",
    (*MOE, *DECODER),
    # Files whose layers all have experts leave out the width of the others.
    config=lambda config, tensors: dict(
        norm_topk_prob=True,
        intermediate_size=config.get("intermediate_size") or config.get("moe_intermediate_size"),
    ),
)
QWEN2_GGUF = GGUF(
    "qwen2moe",
    (
        *MOE,
        Row("blk.{i}.ffn_gate_inp_shexp.*", "layers.{i}.feedforward.shared_gate.*"),
        Rename("blk.{i}.ffn_{p}_shexp.*", "layers.{i}.feedforward.shared.{p}.*"),
        *DECODER,
    ),
)

# 2.8 million parameters, of which a token uses one million.
MIXTRAL_POCKET = POCKET | dict(intermediate_size=192, num_local_experts=8, num_experts_per_tok=2)
QWEN_EXPERTS = dict(moe_intermediate_size=96, num_experts=16, num_experts_per_tok=4, norm_topk_prob=True)
QWEN3_POCKET = POCKET | QWEN_EXPERTS | dict(head_dim=32)
QWEN2_POCKET = POCKET | QWEN_EXPERTS | dict(shared_expert_intermediate_size=192)
SMALL_EXPERTS = dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=32)


@hookimpl
def zoo_architectures():
    yield Architecture(
        name="mixtral",
        base="llama",
        summary="LLaMA with eight feed-forwards a layer, two of them used by each token",
        model_types=("mixtral",),
        recipe=mixtral,
        weights=MIXTRAL_WEIGHTS,
        mlx_weights=MIXTRAL_MLX_WEIGHTS,
        gguf=MIXTRAL_GGUF,
        presets=(
            pocket(__file__, "mixtral", **MIXTRAL_POCKET),
            published(
                "8x7b",
                "mistralai/Mixtral-8x7B-v0.1",
                "Apache-2.0",
                **EIGHT_BILLION,
                num_local_experts=8,
                num_experts_per_tok=2,
                vocab_size=32000,
                max_position_embeddings=32768,
                rope_theta=1000000.0,
            ),
            Preset("tiny", config=TINY | dict(num_local_experts=4, sliding_window=6)),
        ),
        references=("Jiang et al., 2024, arXiv:2401.04088",),
        published="2024-01",
    )
    yield Architecture(
        name="qwen2-moe",
        base="qwen2",
        summary="Qwen2 with sixty small experts and a gated shared one",
        model_types=("qwen2_moe",),
        recipe=qwen2_moe,
        weights=QWEN_WEIGHTS,
        mlx_weights=QWEN_MLX_WEIGHTS,
        gguf=QWEN2_GGUF,
        presets=(
            published(
                "a2.7b",
                "Qwen/Qwen1.5-MoE-A2.7B",
                "Tongyi Qianwen License",
                **sized(layers=24, dim=2048, heads=16, kv_heads=16, hidden=5632),
                moe_intermediate_size=1408,
                shared_expert_intermediate_size=5632,
                num_experts=60,
                num_experts_per_tok=4,
                norm_topk_prob=False,
                vocab_size=151936,
                max_position_embeddings=8192,
                rope_theta=1000000.0,
            ),
            Preset("pocket", config=QWEN2_POCKET),
            Preset(
                "tiny",
                config=TINY
                | SMALL_EXPERTS
                | dict(
                    shared_expert_intermediate_size=48,
                    mlp_only_layers=[1],
                    use_sliding_window=True,
                    sliding_window=6,
                ),
            ),
        ),
        references=("Yang et al., 2024, arXiv:2407.10671",),
        published="2024-07",
    )
    yield Architecture(
        name="qwen3-moe",
        base="qwen3",
        summary="Qwen3 with a hundred and twenty-eight small experts, eight of them used by each token",
        model_types=("qwen3_moe",),
        recipe=qwen3_moe,
        weights=QWEN_WEIGHTS,
        mlx_weights=QWEN_MLX_WEIGHTS,
        gguf=QWEN3_GGUF,
        presets=(
            pocket(__file__, "qwen3-moe", **QWEN3_POCKET),
            published(
                "30b-a3b",
                "Qwen/Qwen3-30B-A3B",
                "Apache-2.0",
                **sized(layers=48, dim=2048, heads=32, kv_heads=4, hidden=6144),
                moe_intermediate_size=768,
                head_dim=128,
                num_experts=128,
                num_experts_per_tok=8,
                norm_topk_prob=True,
                vocab_size=151936,
                max_position_embeddings=40960,
                rope_theta=1000000.0,
            ),
            Preset("tiny", config=TINY | SMALL_EXPERTS | dict(head_dim=24, decoder_sparse_step=2)),
        ),
        references=("Yang et al., 2025, arXiv:2505.09388",),
        published="2025-05",
    )
