"""DeepSeek-V3: latent attention, many small experts and a shared one. Imports no mlx."""

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
from zoo_deepseek.prediction_rules import PREDICTION_WEIGHTS
from zoo_deepseek.prediction_spec import PredictionLayer, prediction_recipe
from zoo_deepseek.recipes import deepseek_v3
from zoo_deepseek.rules import GGUF_KEYS, GGUF_WEIGHTS, MLX_WEIGHTS, WEIGHTS, config_of_gguf
from zoo_deepseek.sizes import MOONLIGHT, POCKET, TINY, V3
from zoo_deepseek.spec import GroupRouter, LatentAttention


@hookimpl
def zoo_blocks():
    """Latent attention and the grouped router."""
    yield Block(LatentAttention, "zoo_deepseek.block:LatentAttention", "multi-head latent attention (MLA)")
    yield Block(GroupRouter, "zoo_deepseek.block:GroupRouter", "group-limited top-k router over sigmoids")
    yield Block(
        PredictionLayer, "zoo_deepseek.prediction:PredictionLayer", "layer for the token after the next"
    )


@hookimpl
def zoo_facts():
    """The memory that latents save."""
    yield FactSource("latent", "zoo_deepseek.facts:expanded_cache", "what the cache would be without latents")


@hookimpl
def zoo_drawings():
    yield Drawing(LatentAttention, "zoo_deepseek.drawing:latent_attention")
    yield Drawing(GroupRouter, "zoo_deepseek.drawing:group_router")


@hookimpl
def zoo_architectures():
    """DeepSeek-V3, R1, Kimi K2 and Moonlight."""
    yield Architecture(
        name="deepseek-v3",
        base="llama",
        summary="latent attention with a compressed cache, many small experts, a shared one",
        model_types=("deepseek_v3", "kimi_k2"),
        recipe=deepseek_v3,
        weights=WEIGHTS,
        mlx_weights=MLX_WEIGHTS,
        gguf=GGUF("deepseek2", GGUF_WEIGHTS, keys=GGUF_KEYS, config=config_of_gguf),
        presets=(
            pocket(__file__, "deepseek-v3", **POCKET),
            Preset("671b", hub="deepseek-ai/DeepSeek-V3", config=V3, licence="DeepSeek Model License"),
            Preset("moonlight-16b", hub="moonshotai/Moonlight-16B-A3B", config=MOONLIGHT, licence="MIT"),
            Preset("tiny", config=TINY),
        ),
        references=("DeepSeek-AI, 2024, arXiv:2412.19437", "DeepSeek-AI, 2024, arXiv:2405.04434"),
        prediction=Architecture(
            name="deepseek-v3-prediction",
            summary="the layer of DeepSeek-V3 for the token after the next",
            recipe=prediction_recipe,
            weights=PREDICTION_WEIGHTS,
        ),
    )


@hookimpl
def zoo_probes():
    yield ModuleProbe("zoo_deepseek.block:LatentAttention", "zoo_deepseek.probe:LatentAttentionProbe")
    yield ModuleProbe("zoo_deepseek.block:GroupRouter", "zoo_deepseek.probe:GroupRouterProbe")
