"""EXAONE 4, as a difference from OLMo 2. Imports no mlx."""

from zoo.architecture import GGUF, Architecture, Preset, hookimpl
from zoo.recipe import RMSNorm
from zoo_llama import POCKET, TINY, llama3_scaling, published, sized, windows_by_type
from zoo_olmo import GGUF_WEIGHTS, WEIGHTS, olmo2


def exaone4(config):
    """OLMo 2 with a norm on each head; with windows, layers without one have no positions (LG AI Research, 2025)."""
    config = config.with_defaults(head_dim=config.head_width())
    recipe, windows = olmo2(config), windows_of(config)
    norm = RMSNorm(eps=config.number("rms_norm_eps", 1e-5))
    return recipe.change_layers(
        lambda index, layer: dict(
            mixer=dict(
                query_norm=norm,
                key_norm=norm,
                window=windows[index],
                rope=layer.mixer.rope if windows[index] or not any(windows) else None,
            )
        )
    )


def windows_of(config):
    """Each layer's window: by `layer_types`, else by a pattern such as "LLLG", whose last layer sees all, or its length."""
    pattern = config.get("sliding_window_pattern", 4)
    if config.is_null("sliding_window"):
        config.choices("layer_types", ("full_attention",), config.layers(), None)
        return [None] * config.layers()
    if not isinstance(pattern, str):
        return windows_by_type(config, every=config.count("sliding_window_pattern", 4))
    if not pattern or set(pattern) - {"L", "G"}:
        raise config.error("sliding_window_pattern", "must be a number, or letters L and G")
    last = config.layers() - 1
    local = [pattern[index % len(pattern)] == "L" and index < last for index in range(last + 1)]
    types = ["sliding_attention" if each else "full_attention" for each in local]
    return windows_by_type(config.with_defaults(layer_types=types), every=len(pattern))


def window_of_gguf(config, tensors):
    """A file without a window says so by leaving it out."""
    return {} if "sliding_window" in config else dict(sliding_window=None)


EXAONE = dict(vocab_size=102400, rms_norm_eps=1e-5, rope_theta=1000000.0, rope_scaling=llama3_scaling(16.0))


@hookimpl
def zoo_architectures():
    """EXAONE 4."""
    yield Architecture(
        name="exaone4",
        base="olmo2",
        summary="OLMo 2 with a norm on each query and key head, and windows in three of four layers, which alone have positions",
        model_types=("exaone4",),
        recipe=exaone4,
        weights=WEIGHTS,
        gguf=GGUF("exaone4", GGUF_WEIGHTS, config=window_of_gguf),
        presets=(
            published(
                "1.2b",
                "LGAI-EXAONE/EXAONE-4.0-1.2B",
                "EXAONE AI Model License 1.2",
                **sized(layers=30, dim=2048, heads=32, kv_heads=8, hidden=4096, **EXAONE),
                max_position_embeddings=65536,
                sliding_window=None,
                tie_word_embeddings=True,
            ),
            published(
                "32b",
                "LGAI-EXAONE/EXAONE-4.0-32B",
                "EXAONE AI Model License 1.2",
                **sized(layers=64, dim=5120, heads=40, kv_heads=8, hidden=27392, **EXAONE),
                max_position_embeddings=131072,
                sliding_window=4096,
                sliding_window_pattern="LLLG",
            ),
            Preset("pocket", config=POCKET | dict(sliding_window=16)),
            Preset("tiny", config=TINY | dict(num_hidden_layers=4, sliding_window=6)),
        ),
        references=("LG AI Research, 2025, arXiv:2507.11407",),
        published="2025-07",
    )
