"""dots.llm1, as a difference from Qwen3 with DeepSeek-V3's experts. Imports no mlx."""

from zoo.architecture import GGUF, Architecture, Preset, Rename, hookimpl
from zoo.gguf import DECODER
from zoo.recipe import RMSNorm
from zoo_deepseek import moe
from zoo_deepseek.rules import EXPERTS, GGUF_MIXTURE, MIXTURE, MIXTURE_KEYS, mixture_of_gguf
from zoo_llama import POCKET, TINY, layer_windows, llama, published, sized
from zoo_llama import WEIGHTS as LLAMA_WEIGHTS


def dots1(config):
    """LLaMA with a norm on each query and key head, and DeepSeek-V3's mixture after dense layers (Huo et al., 2025)."""
    config.ignore("output_router_logits")
    config.choice("scoring_func", ("sigmoid", "noaux_tc"), "sigmoid")  # two names of one function
    config = config.replaced(scoring_func=None).with_defaults(
        n_shared_experts=0, norm_topk_prob=False, routed_scaling_factor=1.0, n_group=1, topk_group=1
    )
    windows = layer_windows(config.with_defaults(use_sliding_window=True, max_window_layers=62))
    first = config.count("first_k_dense_replace", 0, least=0)
    norm, sparse = RMSNorm(eps=config.number("rms_norm_eps", 1e-6)), moe(config, config.activation())
    return llama(config).change_layers(
        lambda index, layer: dict(
            mixer=dict(query_norm=norm, key_norm=norm, window=windows[index]),
            feedforward=sparse if index >= first else layer.feedforward,
        )
    )


WEIGHTS = (*MIXTURE, *EXPERTS, *LLAMA_WEIGHTS)
MLX_WEIGHTS = (
    *MIXTURE,
    Rename("[model.]layers.{i}.mlp.experts.{p}_proj.*", "layers.{i}.feedforward.experts.{p}.*"),
    *LLAMA_WEIGHTS,
)
SMALL = dict(
    num_experts_per_tok=2,
    moe_intermediate_size=32,
    n_shared_experts=1,
    n_routed_experts=6,
    first_k_dense_replace=1,
    norm_topk_prob=True,
)


@hookimpl
def zoo_architectures():
    """dots.llm1."""
    yield Architecture(
        name="dots1",
        base="qwen3",
        summary="Qwen3 with DeepSeek-V3's mixture of small experts and two shared ones after a dense layer",
        model_types=("dots1",),
        recipe=dots1,
        weights=WEIGHTS,
        mlx_weights=MLX_WEIGHTS,
        gguf=GGUF(
            "dots1",
            (*GGUF_MIXTURE, *DECODER),
            keys=MIXTURE_KEYS,
            config=lambda config, tensors: mixture_of_gguf(config) | dict(sliding_window=None),
        ),
        presets=(
            published(
                "142b-a14b",
                "rednote-hilab/dots.llm1.inst",
                "MIT",
                **sized(layers=62, dim=4096, heads=32, kv_heads=32, hidden=10944),
                moe_intermediate_size=1408,
                n_routed_experts=128,
                n_shared_experts=2,
                num_experts_per_tok=6,
                first_k_dense_replace=1,
                norm_topk_prob=True,
                routed_scaling_factor=2.5,
                vocab_size=152064,
                max_position_embeddings=32768,
                rope_theta=10000000.0,
                rms_norm_eps=1e-5,
            ),
            Preset("pocket", config=POCKET | SMALL | dict(n_routed_experts=16, moe_intermediate_size=96)),
            Preset("tiny", config=TINY | SMALL | dict(head_dim=24)),
        ),
        references=("Huo et al., 2025, arXiv:2506.05767",),
        published="2025-06",
    )
