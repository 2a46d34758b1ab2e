"""LLaMA, and the families that differ from it in few parts. Imports no mlx."""

from zoo.architecture import GGUF, Architecture, Ignore, OutputHead, Preset, Rename, hookimpl, pocket
from zoo.gguf import DECODER, RotaryPairs
from zoo.recipe import Attention, Decoder, Embedding, GatedMLP, Head, Layer, RMSNorm, RoPE, repeat
from zoo_llama.presets import LLAMA, MISTRAL, QWEN2_5, QWEN_3
from zoo_llama.sizes import EIGHT_BILLION, LLAMA_3, SMOLLM2, llama3_scaling, published, sized


def llama(config, rope=None):
    """Pre-RMSNorm, rotary positions, grouped-query attention, SwiGLU (Touvron et al., 2023).

    `rope` are the positions of a family that reads them from its config by other names, or scales them otherwise.
    """
    config.ignore("attention_dropout", "pretraining_tp", "max_sequence_length", "rope_init", "name")
    heads = config.count("num_attention_heads")
    head_dim = config.count("head_dim", None) or config.head_width()
    bias = config.flag("attention_bias", False)
    norm = RMSNorm(eps=config.number("rms_norm_eps", 1e-6))
    layer = Layer(
        placement="pre",
        mixer_norm=norm,
        mixer=Attention(
            heads=heads,
            kv_heads=config.kv_heads(heads),
            head_dim=head_dim,
            bias=bias,
            output_bias=config.flag("attention_out_bias", bias),
            rope=rope or RoPE.of(config, head_dim),
        ),
        feedforward_norm=norm,
        feedforward=GatedMLP(
            hidden=config.count("intermediate_size"),
            activation=config.activation("hidden_act", "silu"),
            bias=config.flag("mlp_bias", False),
        ),
    )
    return Decoder(
        embedding=Embedding(vocab=config.count("vocab_size"), dim=config.count("hidden_size")),
        layers=repeat(layer, config.layers()),
        norm=norm,
        head=Head(tied=config.flag("tie_word_embeddings", False)),
        context=config.count("max_position_embeddings", 2048),
    )


def mistral(config):
    """LLaMA whose attention sees only a sliding window (Jiang et al., 2023)."""
    return llama(config).change_layers(mixer=dict(window=sliding_window(config)))


def sliding_window(config):
    """The window's width; absent means 4096, null that there is none."""
    return None if config.is_null("sliding_window") else config.count("sliding_window", 4096)


def windows_by_type(config, every):
    """Each layer's sliding window, as `layer_types` says; without it, every `every`-th layer sees all tokens.

    The window's default is 4,096 tokens. ConfigError where it is null and a layer asks for one.
    """
    count = config.layers()
    default = [("sliding_attention", "full_attention")[(index + 1) % every == 0] for index in range(count)]
    types = config.choices("layer_types", ("sliding_attention", "full_attention"), count, default)
    if config.is_null("sliding_window") and "sliding_attention" in types:
        raise config.error("sliding_window", "must be a number: layer_types asks for a window")
    window = config.count("sliding_window", 4096)
    return [window if kind == "sliding_attention" else None for kind in types]


def qwen2(config):
    """LLaMA with biases on queries, keys and values; some layers may see only a window (Qwen, 2024)."""
    windows = layer_windows(config)
    return llama(config).change_layers(
        lambda index, layer: dict(mixer=dict(bias=True, output_bias=False, window=windows[index]))
    )


def qwen3(config):
    """LLaMA with a norm on each query and key head; head_dim is free of the width (Qwen, 2025)."""
    windows, norm = layer_windows(config), RMSNorm(eps=config.number("rms_norm_eps", 1e-6))
    head_dim = config.count("head_dim", 128)
    return llama(config).change_layers(
        lambda index, layer: dict(
            mixer=dict(query_norm=norm, key_norm=norm, window=windows[index], head_dim=head_dim)
        )
    )


def layer_windows(config):
    """Each layer's sliding window: `layer_types` says which layers have one, else those from `max_window_layers` on."""
    count = config.layers()
    config.ignore("sliding_window")  # it stands in published configs whose use_sliding_window is false
    window = sliding_window(config) if config.flag("use_sliding_window", False) else None
    first = config.count("max_window_layers", 28, least=0)
    default = [
        "sliding_attention" if window and index >= first else "full_attention" for index in range(count)
    ]
    types = config.choices("layer_types", ("sliding_attention", "full_attention"), count, default)
    if window is None and "sliding_attention" in types:
        raise config.error("layer_types", "asks for a window, but use_sliding_window is false")
    return [window if kind == "sliding_attention" else None for kind in types]


WEIGHTS = (
    Rename("[model.]embed_tokens.*", "embedding.tokens.*"),
    Rename("[model.]layers.{i}.input_layernorm.*", "layers.{i}.mixer_norm.*"),
    Rename("[model.]layers.{i}.self_attn.q_proj.*", "layers.{i}.mixer.query.*"),
    Rename("[model.]layers.{i}.self_attn.k_proj.*", "layers.{i}.mixer.key.*"),
    Rename("[model.]layers.{i}.self_attn.v_proj.*", "layers.{i}.mixer.value.*"),
    Rename("[model.]layers.{i}.self_attn.o_proj.*", "layers.{i}.mixer.output.*"),
    Rename("[model.]layers.{i}.self_attn.q_norm.*", "layers.{i}.mixer.query_norm.*"),
    Rename("[model.]layers.{i}.self_attn.k_norm.*", "layers.{i}.mixer.key_norm.*"),
    Rename("[model.]layers.{i}.post_attention_layernorm.*", "layers.{i}.feedforward_norm.*"),
    Rename("[model.]layers.{i}.mlp.gate_proj.*", "layers.{i}.feedforward.gate.*"),
    Rename("[model.]layers.{i}.mlp.up_proj.*", "layers.{i}.feedforward.up.*"),
    Rename("[model.]layers.{i}.mlp.down_proj.*", "layers.{i}.feedforward.down.*"),
    Rename("[model.]norm.*", "norm.*"),
    OutputHead("lm_head.*", "head.output.*"),
    Ignore("[model.]layers.{i}.self_attn.rotary_emb.inv_freq"),
    Ignore("[model.]rotary_emb.inv_freq"),
)


LLAMA_GGUF = (
    RotaryPairs("blk.{i}.attn_q.*", "layers.{i}.mixer.query.*"),
    RotaryPairs("blk.{i}.attn_k.*", "layers.{i}.mixer.key.*", heads="kv_heads"),
    *DECODER,
)


def biases(config, tensors):
    """Which matrices have biases: only the tensors show it. Some have them on queries, keys and values alone."""
    names = ("attn_q", "attn_output", "ffn_up")
    inner, outer, mlp = (f"blk.0.{name}.bias" in tensors for name in names)
    return dict(attention_bias=inner, mlp_bias=mlp) | (
        {} if inner == outer else dict(attention_out_bias=outer)
    )


POCKET = sized(layers=4, dim=128, heads=4, kv_heads=2, hidden=384, vocab_size=2048) | dict(
    max_position_embeddings=128, tie_word_embeddings=True
)

# The smallest model with all its parts: what the conformance suite builds.
TINY = POCKET | dict(hidden_size=64, intermediate_size=128, num_hidden_layers=3, vocab_size=256)


@hookimpl
def zoo_architectures():
    yield Architecture(
        name="llama",
        summary="Pre-RMSNorm, rotary positions, grouped-query attention, SwiGLU",
        model_types=("llama",),
        recipe=llama,
        weights=WEIGHTS,
        gguf=GGUF("llama", LLAMA_GGUF, config=biases),
        presets=(
            pocket(__file__, "llama", **POCKET),
            published(
                "8b",
                "meta-llama/Llama-3.1-8B",
                "Llama 3.1 Community License",
                **EIGHT_BILLION,
                **LLAMA_3,
            ),
            published(
                "70b",
                "meta-llama/Llama-3.1-70B",
                "Llama 3.1 Community License",
                **sized(layers=80, dim=8192, heads=64, kv_heads=8, hidden=28672, rms_norm_eps=1e-5),
                **LLAMA_3,
            ),
            published(
                "1b",
                "meta-llama/Llama-3.2-1B-Instruct",
                "Llama 3.2 Community License",
                2_471_645_608,
                "answers in English and seven other languages",
                ("llama3.2:1b",),
                **sized(layers=16, dim=2048, heads=32, kv_heads=8, hidden=8192, rms_norm_eps=1e-5),
                head_dim=64,
                vocab_size=128256,
                max_position_embeddings=131072,
                rope_theta=500000.0,
                rope_scaling=llama3_scaling(32.0),
                tie_word_embeddings=True,
            ),
            published(
                "smollm2-135m",
                "HuggingFaceTB/SmolLM2-135M-Instruct",
                "Apache-2.0",
                269_060_552,
                "answers in English",
                ("smollm2", "smollm2:135m"),
                **sized(layers=30, dim=576, heads=9, kv_heads=3, hidden=1536),
                **SMOLLM2,
            ),
            published(
                "smollm2-360m",
                "HuggingFaceTB/SmolLM2-360M-Instruct",
                "Apache-2.0",
                723_674_912,
                "answers in English",
                ("smollm2:360m",),
                **sized(layers=32, dim=960, heads=15, kv_heads=5, hidden=2560),
                **SMOLLM2,
            ),
            *LLAMA,
            Preset("tiny", config=TINY),
        ),
        references=("Touvron et al., 2023, arXiv:2302.13971", "Dubey et al., 2024, arXiv:2407.21783"),
        published="2023-02",
    )
    yield Architecture(
        name="mistral",
        base="llama",
        summary="LLaMA with sliding-window attention",
        model_types=("mistral",),
        text_of=("mistral3",),
        recipe=mistral,
        weights=WEIGHTS,
        gguf=GGUF("llama", LLAMA_GGUF, when="attention.sliding_window", config=biases),
        presets=(
            published(
                "7b",
                "mistralai/Mistral-7B-v0.1",
                "Apache-2.0",
                **EIGHT_BILLION,
                vocab_size=32000,
                max_position_embeddings=32768,
                sliding_window=4096,
            ),
            *MISTRAL,
            Preset("pocket", config=POCKET | dict(sliding_window=32)),
            Preset("tiny", config=TINY | dict(sliding_window=6)),
        ),
        references=("Jiang et al., 2023, arXiv:2310.06825",),
        published="2023-10",
    )
    yield Architecture(
        name="qwen2",
        base="llama",
        summary="LLaMA with query, key and value biases and per-layer windows",
        model_types=("qwen2",),
        recipe=qwen2,
        weights=WEIGHTS,
        gguf=GGUF("qwen2", DECODER),
        presets=(
            published(
                "7b",
                "Qwen/Qwen2.5-7B",
                "Apache-2.0",
                **sized(layers=28, dim=3584, heads=28, kv_heads=4, hidden=18944),
                vocab_size=152064,
                max_position_embeddings=131072,
                rope_theta=1000000.0,
            ),
            *QWEN2_5,
            Preset("pocket", config=POCKET),
            Preset(
                "tiny", config=TINY | dict(use_sliding_window=True, sliding_window=6, max_window_layers=1)
            ),
        ),
        references=("Yang et al., 2024, arXiv:2407.10671",),
        published="2024-07",
    )
    yield Architecture(
        name="qwen3",
        base="llama",
        summary="LLaMA with a norm on each query and key head",
        model_types=("qwen3", "qwen3_vl_text"),
        text_of=("qwen3_vl",),
        recipe=qwen3,
        weights=WEIGHTS,
        gguf=GGUF("qwen3", DECODER),
        presets=(
            pocket(__file__, "qwen3", **POCKET, head_dim=32),
            published(
                "0.6b",
                "Qwen/Qwen3-0.6B",
                "Apache-2.0",
                1_503_300_328,  # the tied head is stored, too
                "thinks, and answers in many languages",
                **sized(layers=28, dim=1024, heads=16, kv_heads=8, hidden=3072),
                head_dim=128,
                vocab_size=151936,
                max_position_embeddings=40960,
                rope_theta=1000000.0,
                tie_word_embeddings=True,
            ),
            *QWEN_3,
            Preset("tiny", config=TINY | dict(head_dim=24)),
        ),
        references=("Yang et al., 2025, arXiv:2505.09388",),
        published="2025-05",
    )
