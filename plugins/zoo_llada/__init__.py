"""LLaDA: a LLaMA without the causal mask, that writes by unmasking. Imports no mlx."""

from zoo.architecture import (
    Architecture,
    Objective,
    OutputHead,
    Preset,
    Rename,
    Setting,
    Strategy,
    hookimpl,
    pocket,
)
from zoo.recipe import Attention, Decoder, Embedding, GatedMLP, Head, Layer, RMSNorm, RoPE, repeat

MOST = 2**31 - 1  # MLX counts in 32 bits


def llada(config):
    """LLaMA's layers with bidirectional attention, under the names of its own config (Nie et al., 2025)."""
    # The reference's other blocks, norms and positions are in no published LLaDA.
    config.choice("block_type", ("llama",), "sequential")
    config.choice("layer_norm_type", ("rms",), "default")
    if not config.flag("rope", False):
        raise config.error("rope", "is not implemented: positions are rotary")
    for key in ("alibi", "attention_layer_norm", "scale_logits", "multi_query_attention"):
        config.refuse(key)
    for key in ("layer_norm_with_affine", "block_group_size"):
        if config.get(key, 1) != 1:
            raise config.error(key, "is not implemented")
    config.ignore(*UNUSED)
    dim, heads = config.count("d_model"), config.count("n_heads")
    head_dim = config.head_width("d_model", "n_heads")
    bias = config.flag("include_bias", False)
    norm_bias = "include_bias" if config.get("bias_for_layer_norm") is None else "bias_for_layer_norm"
    config.refuse(norm_bias, why="gives the norms a bias, which is not implemented")
    norm = RMSNorm(eps=config.number("rms_norm_eps", 1e-5))
    layer = Layer(
        placement="pre",
        mixer_norm=norm,
        mixer=Attention(
            heads=heads,
            kv_heads=config.kv_heads(heads, "n_kv_heads", "n_heads"),
            head_dim=head_dim,
            bias=bias or config.flag("include_qkv_bias", False),
            output_bias=bias,
            rope=RoPE(theta=config.number("rope_theta", 10000.0)),
        ),
        feedforward_norm=norm,
        feedforward=GatedMLP(
            hidden=config.count("mlp_hidden_size", config.count("mlp_ratio", 4) * dim),
            activation=config.activation("activation_type", "swiglu"),
            bias=bias,
        ),
    )
    # The table may have more rows than there are tokens.
    vocab = config.count("embedding_size", config.count("vocab_size"))
    if vocab < config.count("vocab_size"):
        raise config.error("embedding_size", "is smaller than vocab_size")
    return Decoder(
        embedding=Embedding(
            vocab=vocab, dim=dim, scale=dim**0.5 if config.flag("input_emb_norm", False) else 1.0
        ),
        layers=repeat(layer, config.layers("n_layers")),
        norm=norm,
        head=Head(tied=config.flag("weight_tying", True)),
        context=config.count("max_sequence_length", 1024),
        causality="full",
    )


# How it was initialised and trained, on which device, and settings of what is refused above.
UNUSED = (
    *("init_device", "init_fn", "init_std", "init_cutoff_factor", "precision", "rope_full_precision"),
    *(
        "flash_attention",
        "attention_dropout",
        "residual_dropout",
        "embedding_dropout",
        "train_max_sequence_length",
    ),
    *("alibi_bias_max", "attention_layer_norm_with_affine"),
)

BLOCK = "model.transformer.blocks.{i}."
WEIGHTS = (
    Rename("model.transformer.wte.*", "embedding.tokens.*"),
    Rename(BLOCK + "attn_norm.*", "layers.{i}.mixer_norm.*"),
    Rename(BLOCK + "q_proj.*", "layers.{i}.mixer.query.*"),
    Rename(BLOCK + "k_proj.*", "layers.{i}.mixer.key.*"),
    Rename(BLOCK + "v_proj.*", "layers.{i}.mixer.value.*"),
    Rename(BLOCK + "attn_out.*", "layers.{i}.mixer.output.*"),
    Rename(BLOCK + "ff_norm.*", "layers.{i}.feedforward_norm.*"),
    Rename(BLOCK + "ff_proj.*", "layers.{i}.feedforward.gate.*"),
    Rename(BLOCK + "up_proj.*", "layers.{i}.feedforward.up.*"),
    Rename(BLOCK + "ff_out.*", "layers.{i}.feedforward.down.*"),
    Rename("model.transformer.ln_f.*", "norm.*"),
    OutputHead("model.transformer.ff_out.*", "head.output.*"),
)

COMMON = dict(
    block_type="llama",
    layer_norm_type="rms",
    activation_type="silu",
    rope=True,
    include_bias=False,
)

POCKET = COMMON | dict(
    d_model=128,
    mlp_hidden_size=384,
    n_layers=4,
    n_heads=4,
    n_kv_heads=2,
    max_sequence_length=128,
    vocab_size=2139,
    weight_tying=True,
)

TINY = POCKET | dict(d_model=64, mlp_hidden_size=128, n_layers=3, vocab_size=256)

EIGHT_BILLION = COMMON | dict(
    d_model=4096,
    mlp_hidden_size=12288,
    n_layers=32,
    n_heads=32,
    n_kv_heads=32,
    max_sequence_length=4096,
    vocab_size=126464,
    embedding_size=126464,
    rope_theta=500000.0,
    weight_tying=False,
    mask_token_id=126336,
    eos_token_id=126081,
)


@hookimpl
def zoo_architectures():
    yield Architecture(
        name="llada",
        base="llama",
        summary="LLaMA without the causal mask, that writes by unmasking",
        task="denoise",
        causality="full",
        model_types=("llada",),
        recipe=llada,
        weights=WEIGHTS,
        presets=(
            pocket(__file__, "llada", **POCKET),
            Preset("8b", hub="GSAI-ML/LLaDA-8B-Base", config=EIGHT_BILLION, licence="MIT"),
            Preset("8b-instruct", hub="GSAI-ML/LLaDA-8B-Instruct", config=EIGHT_BILLION, licence="MIT"),
            Preset("tiny", config=TINY),
        ),
        references=("Nie et al., 2025, arXiv:2502.09992",),
        published="2025-02",
    )


@hookimpl
def zoo_strategies():
    yield Strategy(
        "masked-diffusion",
        "zoo_llada.unmask:stream",
        tasks=("denoise",),
        settings=(
            *("temperature", "top_k", "top_p", "min_p", "min_tokens_to_keep", "seed", "special_tokens"),
            Setting("max_tokens", int, 64, minimum=1, maximum=MOST, help="Most tokens to generate."),
            Setting(
                "steps", int, minimum=1, maximum=MOST, help="Passes that uncover the answer (one a token)."
            ),
            Setting(
                "block_length", int, 32, minimum=1, maximum=MOST, help="Tokens that are uncovered together."
            ),
        ),
        summary="a text of masks, the most probable tokens uncovered first",
        batch="zoo_llada.unmask:batch",
    )


@hookimpl
def zoo_objectives():
    yield Objective(
        "diffusion",
        "zoo_llada.objective:DIFFUSION",
        tasks=("denoise",),
        causalities=("full",),
        summary="any share of the tokens masked, as LLaDA's",
    )
