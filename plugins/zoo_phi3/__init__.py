"""Phi-3 and Phi-4: LLaMA with fused projections, and long contexts by LongRoPE. Imports no mlx."""

from zoo.architecture import GGUF, Architecture, Preset, Split, hookimpl
from zoo.gguf import DECODER
from zoo.recipe import RoPE
from zoo.recipe.rope import KINDS
from zoo_llama import POCKET, TINY, llama, published, sized
from zoo_llama import WEIGHTS as LLAMA_WEIGHTS


def phi3(config):
    """LLaMA, all of whose layers may see only a window (Abdin et al., 2024)."""
    config.ignore("resid_pdrop", "embd_pdrop")  # of training
    config = config.with_defaults(
        rms_norm_eps=1e-5, max_position_embeddings=4096, original_max_position_embeddings=4096
    )
    # The first releases called it otherwise, and had no other kind.
    kinds = dict.fromkeys(("su", "yarn"), KINDS["longrope"])
    rope = RoPE.of(config, config.count("head_dim", None), kinds=kinds)
    return llama(config, rope).change_layers(mixer=dict(window=config.count("sliding_window", None)))


LAYER, MIXER = "[model.]layers.{i}.", "layers.{i}.mixer."
QKV = tuple(MIXER + part + ".*" for part in ("query", "key", "value"))
GATED = ("layers.{i}.feedforward.gate.*", "layers.{i}.feedforward.up.*")
UNEQUAL = ("heads", "kv_heads", "kv_heads")  # keys and values may have fewer heads
WEIGHTS = (
    Split(LAYER + "self_attn.qkv_proj.*", QKV, sizes=UNEQUAL),
    Split(LAYER + "mlp.gate_up_proj.*", GATED),
    *LLAMA_WEIGHTS,
)
GGUF_WEIGHTS = (
    Split("blk.{i}.attn_qkv.*", QKV, sizes=UNEQUAL),
    Split("blk.{i}.ffn_up.*", GATED),
    *DECODER,
)

# A text that outgrows the short factors changes all of its tokens: those of the suite are not so long.
LONG = TINY | dict(
    max_position_embeddings=2048,
    original_max_position_embeddings=512,
    rope_scaling=dict(type="longrope", short_factor=[1.0] * 4 + [1.5] * 4, long_factor=[1.0] * 2 + [8.0] * 6),
)


@hookimpl
def zoo_architectures():
    """Phi-3, and Phi-4, which is one with other numbers."""
    yield Architecture(
        name="phi3",
        base="llama",
        summary="LLaMA with fused projections, and long contexts by LongRoPE",
        model_types=("phi3",),
        recipe=phi3,
        weights=WEIGHTS,
        gguf=GGUF("phi3", GGUF_WEIGHTS),
        presets=(
            published(
                "mini-4k",
                "microsoft/Phi-3-mini-4k-instruct",
                "MIT",
                **sized(layers=32, dim=3072, heads=32, kv_heads=32, hidden=8192),
                vocab_size=32064,
                max_position_embeddings=4096,
                sliding_window=2047,
            ),
            published(
                "phi-4",
                "microsoft/phi-4",
                "MIT",
                **sized(layers=40, dim=5120, heads=40, kv_heads=10, hidden=17920),
                vocab_size=100352,
                max_position_embeddings=16384,
                rope_theta=250000.0,
                aliases=("phi-4", "phi4", "phi4:14b"),
            ),
            Preset("pocket", config=POCKET),
            Preset("tiny", config=TINY | dict(sliding_window=6)),
            Preset("long", config=LONG),
        ),
        references=("Abdin et al., 2024, arXiv:2404.14219", "Ding et al., 2024, arXiv:2402.13753"),
        published="2024-04",
    )
