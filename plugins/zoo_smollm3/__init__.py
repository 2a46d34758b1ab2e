"""SmolLM3: LLaMA with layers that have no positions. Imports no mlx."""

from zoo.architecture import GGUF, Architecture, Preset, hookimpl
from zoo_llama import LLAMA_GGUF, POCKET, TINY, WEIGHTS, biases, llama, published, sized


def smollm3(config):
    """LLaMA whose every fourth layer has no positions (Hugging Face, 2025; Yang et al., 2025)."""
    config = config.with_defaults(
        num_key_value_heads=4,
        rope_theta=2000000.0,
        max_position_embeddings=32768,
        tie_word_embeddings=True,
        no_rope_layer_interval=4,
    )
    turned = with_positions(config)
    config.ignore("sliding_window", "max_window_layers")  # where use_sliding_window is false
    window = config.count("sliding_window", None) if config.flag("use_sliding_window", False) else None
    default = ["full_attention" if turns or not window else "sliding_attention" for turns in turned]
    kinds = config.choices("layer_types", ("sliding_attention", "full_attention"), len(turned), default)
    return llama(config).change_layers(
        lambda index, layer: dict(
            mixer=dict(
                rope=layer.mixer.rope if turned[index] else None,
                window=window if kinds[index] == "sliding_attention" else None,
            )
        )
    )


def with_positions(config):
    """Whether each layer has positions: where `no_rope_layers` has a 1; 0 stands for a layer without."""
    count, every = config.layers(), config.count("no_rope_layer_interval")
    flags = config.get("no_rope_layers", [int((index + 1) % every != 0) for index in range(count)])
    if not isinstance(flags, list) or len(flags) < count or any(flag not in (0, 1) for flag in flags):
        raise config.error("no_rope_layers", f"must be a list of {count}, each 0 or 1")
    return [bool(flag) for flag in flags[:count]]


@hookimpl
def zoo_architectures():
    """SmolLM3."""
    yield Architecture(
        name="smollm3",
        base="llama",
        summary="LLaMA with no positions in every fourth layer",
        model_types=("smollm3",),
        recipe=smollm3,
        weights=WEIGHTS,
        gguf=GGUF("smollm3", LLAMA_GGUF, config=biases),
        presets=(
            published(
                "3b",
                "HuggingFaceTB/SmolLM3-3B",
                "Apache-2.0",
                **sized(layers=36, dim=2048, heads=16, kv_heads=4, hidden=11008),
                vocab_size=128256,
                max_position_embeddings=65536,
                rope_theta=5000000.0,
                tie_word_embeddings=True,
            ),
            Preset("pocket", config=POCKET),
            Preset("tiny", config=TINY | dict(no_rope_layer_interval=2)),
        ),
        references=('Hugging Face, 2025, "SmolLM3"', "Yang et al., 2025, arXiv:2501.18795"),
        published="2025-07",
    )
