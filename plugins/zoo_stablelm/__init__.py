"""StableLM, as a difference from LLaMA. Imports no mlx."""

from zoo.architecture import Architecture, Preset, hookimpl
from zoo.recipe import LayerNorm
from zoo_llama import POCKET, TINY, WEIGHTS, llama, published, sized


def stablelm(config):
    """LLaMA with LayerNorm, and rotary positions on a quarter of each head (Stability AI, 2023)."""
    config.ignore("hidden_dropout")  # of training
    config.refuse("qk_layernorm", why="is not implemented: a LayerNorm of each head's own")
    config = config.with_defaults(partial_rotary_factor=0.25, max_position_embeddings=4096)
    norm, parallel = (
        LayerNorm(config.number("layer_norm_eps", 1e-5)),
        config.flag("use_parallel_residual", False),
    )
    bias = config.flag("use_qkv_bias", False)
    return (
        llama(config)
        .change_layers(
            mixer=dict(bias=bias, output_bias=False),
            mixer_norm=norm,
            feedforward_norm=None if parallel else norm,
            parallel=parallel,
        )
        .change(norm=norm)
    )


@hookimpl
def zoo_architectures():
    """StableLM."""
    yield Architecture(
        name="stablelm",
        base="llama",
        summary="LLaMA with LayerNorm, and rotary positions on a quarter of each head",
        model_types=("stablelm",),
        recipe=stablelm,
        weights=WEIGHTS,
        presets=(
            published(
                "3b",
                "stabilityai/stablelm-3b-4e1t",
                "CC-BY-SA-4.0",
                **sized(32, 2560, 32, 32, 6912, vocab_size=50304, max_position_embeddings=4096),
            ),
            published(
                "1.6b",
                "stabilityai/stablelm-2-1_6b",
                "Stability AI Community License",
                aliases=("stablelm2", "stablelm2:1.6b"),
                **sized(24, 2048, 32, 32, 5632, vocab_size=100352, max_position_embeddings=4096),
                use_qkv_bias=True,
            ),
            Preset("pocket", config=POCKET),
            Preset("tiny", config=TINY | dict(partial_rotary_factor=0.5, use_qkv_bias=True)),
        ),
        references=('Stability AI, 2023, "StableLM-3B-4E1T"', "Bellagente et al., 2024, arXiv:2402.17834"),
        published="2023-09",
    )
