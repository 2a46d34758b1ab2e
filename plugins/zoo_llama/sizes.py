"""Numbers of LLaMA-like config.json files, and what published ones have in common."""

from zoo.architecture import Preset


def sized(layers, dim, heads, kv_heads, hidden, **numbers):
    """The numbers of a LLaMA-like config.json: those of its size, and others by their own names."""
    return dict(
        hidden_size=dim,
        intermediate_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        **numbers,
    )


# What the published 7B and 8B checkpoints of LLaMA 3 and Mistral have in common.
EIGHT_BILLION = sized(layers=32, dim=4096, heads=32, kv_heads=8, hidden=14336, rms_norm_eps=1e-5)


# SmolLM2's checkpoints, of every size.
SMOLLM2 = dict(
    vocab_size=49152,
    max_position_embeddings=8192,
    rms_norm_eps=1e-5,
    rope_theta=100000.0,
    tie_word_embeddings=True,
)


def llama3_scaling(factor):
    """The `rope_scaling` of LLaMA 3.1 and later, which were trained on texts of 8,192 tokens before."""
    return dict(
        rope_type="llama3",
        factor=factor,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=8192,
    )


# What LLaMA 3.1's checkpoints of every size have in common.
LLAMA_3 = dict(
    vocab_size=128256,
    max_position_embeddings=131072,
    rope_theta=500000.0,
    rope_scaling=llama3_scaling(8.0),
)


def published(name, hub, licence=None, download=None, summary="", aliases=(), **numbers):
    """A preset with the numbers of a published LLaMA-like config.json."""
    return Preset(name, summary, hub=hub, config=numbers, licence=licence, download=download, aliases=aliases)
