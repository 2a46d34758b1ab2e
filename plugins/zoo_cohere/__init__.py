"""Cohere's Command models: LLaMA with parallel layers. Imports no mlx."""

from zoo.architecture import GGUF, Architecture, Preset, hookimpl
from zoo.gguf import DECODER
from zoo.recipe import LayerNorm
from zoo_llama import POCKET, TINY, WEIGHTS, llama, published, sized, windows_by_type

# What the first configs say of the code that trained them.
UNUSED = (
    *("layer_switch", "order_of_interleaved_layers", "position_embedding_type", "rotary_pct"),
    *("use_embedding_sharing", "use_gated_activation", "use_parallel_block", "use_parallel_embedding"),
)


def cohere(config):
    """LLaMA with one LayerNorm before both parts of a layer, which share a sum, and scaled logits (Cohere, 2024)."""
    config.refuse("use_qk_norm", why="is not implemented: Command R+'s norms have weights for each head")
    config.ignore("model_max_length")
    config = config.with_defaults(
        tie_word_embeddings=True, max_position_embeddings=8192, logit_scale=0.0625, rope_theta=500000.0
    )
    norm = LayerNorm(eps=config.number("layer_norm_eps", 1e-5), bias=False)
    recipe = llama(config).change_layers(
        mixer=dict(rope=dict(interleaved=True)), mixer_norm=norm, feedforward_norm=None, parallel=True
    )
    return recipe.change(norm=norm, head=dict(scale=config.number("logit_scale", least=1e-6, most=1e6)))


def cohere2(config):
    """Cohere with windows in three of four layers, and no positions in the others (Cohere, 2025)."""
    config.ignore("cache_implementation", *UNUSED)
    config = config.with_defaults(rope_theta=10000.0)
    windows = windows_by_type(config, every=config.count("sliding_window_pattern", 4))
    return cohere(config).change_layers(
        lambda index, layer: dict(
            mixer=dict(window=windows[index], rope=layer.mixer.rope if windows[index] else None)
        )
    )


KEYS = {"logit_scale": "logit_scale"}


@hookimpl
def zoo_architectures():
    """Command R, and the Command models since R7B."""
    yield Architecture(
        name="cohere",
        base="llama",
        summary="LLaMA with parallel layers, one LayerNorm before both parts, scaled logits",
        model_types=("cohere",),
        recipe=cohere,
        weights=WEIGHTS,
        gguf=GGUF("command-r", DECODER, keys=KEYS),
        presets=(
            published(
                "command-r",
                "CohereLabs/c4ai-command-r-v01",
                "CC-BY-NC-4.0",
                **sized(layers=40, dim=8192, heads=64, kv_heads=64, hidden=22528),
                vocab_size=256000,
                max_position_embeddings=8192,
                logit_scale=0.0625,
                rope_theta=8000000.0,
            ),
            Preset("pocket", config=POCKET),
            Preset("tiny", config=TINY),
        ),
        references=('Cohere, 2024, "Command R"',),
        published="2024-03",
    )
    yield Architecture(
        name="cohere2",
        base="cohere",
        summary="Cohere with windows in three of four layers, and no positions in the others",
        model_types=("cohere2",),
        recipe=cohere2,
        weights=WEIGHTS,
        gguf=GGUF("cohere2", DECODER, keys=KEYS),
        presets=(
            published(
                "r7b",
                "CohereLabs/c4ai-command-r7b-12-2024",
                "CC-BY-NC-4.0",
                **sized(layers=32, dim=4096, heads=32, kv_heads=8, hidden=14336),
                vocab_size=256000,
                rope_theta=50000.0,
                logit_scale=0.25,
            ),
            Preset("pocket", config=POCKET | dict(sliding_window=16)),
            Preset("tiny", config=TINY | dict(sliding_window=6, sliding_window_pattern=3)),
        ),
        references=("Cohere, 2025, arXiv:2504.00698",),
        published="2025-04",
    )
