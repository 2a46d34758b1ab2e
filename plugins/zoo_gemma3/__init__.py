"""Gemma 3, as a difference from Gemma 2. Imports no mlx."""

from zoo.architecture import GGUF, Architecture, Preset, hookimpl
from zoo.gguf import Added
from zoo.recipe import RoPE, two_sided
from zoo_gemma import GEMMA_GGUF, POCKET, TINY, WEIGHTS, OffsetRMSNorm, gemma2, score_scale
from zoo_llama import sized


def gemma3(config):
    """Gemma 2 with norms on query and key heads in the place of caps, five windows to a layer without (Gemma Team, 2025).

    With `use_bidirectional_attention` it is an encoder (EmbeddingGemma), whose tokens see `sliding_window` // 2 tokens on each
    side. Positions have two bases: one in the layers with a window, one in the others, where they may be scaled.
    """
    config.refuse("attn_logit_softcapping")
    config.ignore("_sliding_window_pattern")  # transformers 5 writes it beside layer_types
    config = config.with_defaults(
        **dict(rope_theta=1e6, rope_local_base_freq=1e4, max_position_embeddings=131072),
        # What published configs of models with images leave out.
        **dict(num_attention_heads=8, vocab_size=262208, sliding_window_pattern=6),
    )
    head_dim = config.count("head_dim", 256)
    rope = RoPE.of(config, head_dim, layer_type="full_attention")
    local = RoPE.of(
        config,
        head_dim,
        layer_type="sliding_attention",
        theta_key="rope_local_base_freq",
        scaling_key="rope_parameters",
    )
    config.note("rope_theta", rope.theta)
    config.note("rope_local_base_freq", local.theta)
    norm = OffsetRMSNorm(eps=config.number("rms_norm_eps", 1e-6))
    recipe = gemma2(config, rope, every=config.count("sliding_window_pattern"), caps=(None, None))
    recipe = recipe.change_layers(
        lambda index, layer: dict(
            mixer=dict(query_norm=norm, key_norm=norm, rope=local if layer.mixer.window else rope)
        )
    )
    if config.flag("use_bidirectional_attention", False):
        return two_sided(recipe, halves=True)
    return recipe


GEMMA3_GGUF = (
    Added("blk.{i}.attn_q_norm.*", "layers.{i}.mixer.query_norm.*"),
    Added("blk.{i}.attn_k_norm.*", "layers.{i}.mixer.key_norm.*"),
    *GEMMA_GGUF,
)


# What the checkpoints that read text alone have in common.
TEXT = dict(
    head_dim=256,
    query_pre_attn_scalar=256,
    sliding_window=512,
    sliding_window_pattern=6,
    max_position_embeddings=32768,
    rope_theta=1000000.0,
    rope_local_base_freq=10000.0,
    vocab_size=262144,
)
# The text model of the checkpoints that read images, too.
LARGE = TEXT | dict(
    sliding_window=1024,
    max_position_embeddings=131072,
    rope_scaling=dict(rope_type="linear", factor=8.0),
    vocab_size=262208,
)
LICENCE = "Gemma Terms of Use"


@hookimpl
def zoo_architectures():
    """Gemma 3, of text alone."""
    yield Architecture(
        name="gemma3",
        base="gemma2",
        summary="Gemma 2 with query and key norms instead of soft caps, and five layers with a window to one without",
        model_types=("gemma3_text",),
        text_of=("gemma3",),
        recipe=gemma3,
        weights=WEIGHTS,
        gguf=GGUF(
            "gemma3", GEMMA3_GGUF, keys={"rope.freq_base_swa": "rope_local_base_freq"}, config=score_scale(62)
        ),
        presets=(
            Preset(
                "1b",
                hub="google/gemma-3-1b-it",
                config=sized(layers=26, dim=1152, heads=4, kv_heads=1, hidden=6912, **TEXT),
                licence=LICENCE,
            ),
            Preset(
                "270m",
                hub="google/gemma-3-270m-it",
                config=sized(layers=18, dim=640, heads=4, kv_heads=1, hidden=2048, **TEXT),
                licence=LICENCE,
            ),
            Preset(
                "embedding",
                hub="google/embeddinggemma-300m",
                config=sized(layers=24, dim=768, heads=3, kv_heads=1, hidden=1152, **TEXT)
                | dict(max_position_embeddings=2048, use_bidirectional_attention=True),
                licence=LICENCE,
            ),
            Preset("4b", config=sized(layers=34, dim=2560, heads=8, kv_heads=4, hidden=10240, **LARGE)),
            Preset("12b", config=sized(layers=48, dim=3840, heads=16, kv_heads=8, hidden=15360, **LARGE)),
            Preset("pocket", config=POCKET | dict(sliding_window_pattern=4)),
            Preset("tiny", config=TINY | dict(sliding_window=6, sliding_window_pattern=3)),
        ),
        references=("Gemma Team, 2025, arXiv:2503.19786",),
        published="2025-03",
    )
