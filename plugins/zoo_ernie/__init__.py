"""ERNIE 4.5, as a difference from LLaMA. Imports no mlx."""

from zoo.architecture import GGUF, Architecture, Preset, hookimpl
from zoo.gguf import DECODER
from zoo_llama import POCKET, TINY, WEIGHTS, llama, published, sized


def ernie4_5(config):
    """LLaMA whose heads are turned in neighbouring pairs, and may be of any width (Baidu, 2025)."""
    bias = config.flag("use_bias", False)
    config = config.with_defaults(
        head_dim=128,
        num_key_value_heads=2,
        attention_bias=bias,
        mlp_bias=bias,
        rms_norm_eps=1e-5,
        rope_theta=500000.0,
        max_position_embeddings=131072,
        tie_word_embeddings=True,
    )
    return llama(config).change_layers(mixer=dict(rope=dict(interleaved=True)))


def biases(config, tensors):
    """Whether the projections have biases: only the tensors show it."""
    return dict(use_bias="blk.0.attn_q.bias" in tensors)


@hookimpl
def zoo_architectures():
    """The dense models of ERNIE 4.5."""
    yield Architecture(
        name="ernie4.5",
        base="llama",
        summary="LLaMA whose rotary positions pair neighbouring dimensions",
        model_types=("ernie4_5",),
        recipe=ernie4_5,
        weights=WEIGHTS,
        gguf=GGUF("ernie4_5", DECODER, config=biases),
        presets=(
            published(
                "0.3b",
                "baidu/ERNIE-4.5-0.3B-PT",
                "Apache-2.0",
                **sized(layers=18, dim=1024, heads=16, kv_heads=2, hidden=3072, rms_norm_eps=1e-5),
                head_dim=128,
                vocab_size=103424,
                max_position_embeddings=131072,
                rope_theta=500000.0,
                tie_word_embeddings=True,
            ),
            Preset("pocket", config=POCKET | dict(head_dim=32)),
            Preset("tiny", config=TINY | dict(head_dim=24)),
        ),
        references=('Baidu, 2025, "ERNIE 4.5 Technical Report"',),
        published="2025-06",
    )
