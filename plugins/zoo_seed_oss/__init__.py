"""Seed-OSS, as a difference from LLaMA. Imports no mlx."""

from zoo.architecture import GGUF, Architecture, Preset, Rename, hookimpl
from zoo.gguf import DECODER
from zoo_llama import POCKET, TINY, WEIGHTS, llama, published, sized


def seed_oss(config):
    """LLaMA with biases on queries, keys and values, and heads together wider than the model (ByteDance, 2025)."""
    config.ignore("residual_dropout")
    return llama(
        config.with_defaults(
            head_dim=128, attention_bias=True, attention_out_bias=False, max_position_embeddings=524288
        )
    )


def biases(config, tensors):
    """Which matrices have biases: only the tensors show it."""
    names = dict(attention_bias="attn_q", attention_out_bias="attn_output", mlp_bias="ffn_up")
    return {key: f"blk.0.{name}.bias" in tensors for key, name in names.items()}


@hookimpl
def zoo_architectures():
    """Seed-OSS."""
    yield Architecture(
        name="seed-oss",
        base="llama",
        summary="LLaMA with query, key and value biases, and heads together wider than the model",
        model_types=("seed_oss",),
        recipe=seed_oss,
        weights=WEIGHTS,
        gguf=GGUF(
            "seed_oss",
            (Rename("blk.{i}.post_attention_norm.*", "layers.{i}.feedforward_norm.*"), *DECODER),
            config=biases,
        ),
        presets=(
            published(
                "36b",
                "ByteDance-Seed/Seed-OSS-36B-Base",
                "Apache-2.0",
                **sized(layers=64, dim=5120, heads=80, kv_heads=8, hidden=27648),
                head_dim=128,
                attention_bias=True,
                vocab_size=155136,
                max_position_embeddings=524288,
                rope_theta=10000000.0,
            ),
            Preset("pocket", config=POCKET | dict(head_dim=48)),
            Preset("tiny", config=TINY | dict(head_dim=24)),
        ),
        references=('ByteDance Seed Team, 2025, "Seed-OSS"',),
        published="2025-08",
    )
