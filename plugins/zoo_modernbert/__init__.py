"""ModernBERT: an encoder of today's parts, most of whose layers see a window. Imports no mlx."""

from zoo.architecture import Architecture, OutputHead, Preset, Rename, Split, hookimpl
from zoo.recipe import Attention, Embedding, Encoder, GatedMLP, Layer, LayerNorm, RoPE
from zoo_bert import MaskedHead

THETA_KEYS = {"full_attention": "global_rope_theta", "sliding_attention": "local_rope_theta"}
# Of training, and of heads for other tasks.
UNUSED = (
    *("initializer_cutoff_factor", "embedding_dropout", "attention_dropout", "mlp_dropout"),
    *("classifier_dropout", "classifier_pooling", "deterministic_flash_attn", "reference_compile"),
    *("sparse_prediction", "sparse_pred_ignore_index", "position_embedding_type", "layer_norm_eps"),
)


def modernbert(config):
    """Pre-LN, rotary positions, GEGLU; two layers of three see half a window on each side (Warner et al., 2024)."""
    config.ignore("repad_logits_with_grad", *UNUSED)
    config = config.with_defaults(global_rope_theta=160000.0, local_rope_theta=10000.0)
    vocab, count = config.count("vocab_size"), config.layers()
    every = config.count("global_attn_every_n_layers", 3)
    default = ["sliding_attention" if index % every else "full_attention" for index in range(count)]
    types = config.choices("layer_types", tuple(THETA_KEYS), count, default)
    norm = LayerNorm(eps=config.number("norm_eps", 1e-5), bias=config.flag("norm_bias", False))
    bias = config.flag("attention_bias", False)
    windows = {"full_attention": None, "sliding_attention": config.count("local_attention", 128)}
    mixers = {
        kind: Attention(
            heads=config.count("num_attention_heads"),
            bias=bias,
            output_bias=bias,
            rope=RoPE.of(config, config.head_width(), layer_type=kind, theta_key=key),
            window=windows[kind],
        )
        for kind, key in THETA_KEYS.items()
    }
    feedforward = GatedMLP(
        hidden=config.count("intermediate_size"),
        activation=config.activation("hidden_activation", "gelu"),
        bias=config.flag("mlp_bias", False),
    )
    layers = [Layer(mixers[kind], feedforward, mixer_norm=norm, feedforward_norm=norm) for kind in types]
    layers[0] = layers[0].change(mixer_norm=None)  # the embedding's is just before it
    head = MaskedHead(
        tied=config.flag("tie_word_embeddings", True),
        bias=config.flag("decoder_bias", True),
        activation=config.activation("classifier_activation", "gelu"),
        dense_bias=config.flag("classifier_bias", False),
        norm=norm,
    )
    return Encoder(
        embedding=Embedding(vocab, config.count("hidden_size"), norm=norm),
        layers=tuple(layers),
        norm=norm,
        head=head if config.has_tensor("head.dense.", has_head(config)) else None,
        context=config.count("max_position_embeddings", 8192),
    )


def has_head(config):
    """Whether the model has a masked-LM head, by the class that it was saved from."""
    return any(str(name).endswith("ForMaskedLM") for name in config.get("architectures", ["ForMaskedLM"]))


LAYER = "[model.]layers.{i}."
WEIGHTS = (
    Rename("[model.]embeddings.tok_embeddings.*", "embedding.tokens.*"),
    Rename("[model.]embeddings.norm.*", "embedding.norm.*"),
    Rename(LAYER + "attn_norm.*", "layers.{i}.mixer_norm.*"),
    Split(LAYER + "attn.Wqkv.*", tuple(f"layers.{{i}}.mixer.{part}.*" for part in ("query", "key", "value"))),
    Rename(LAYER + "attn.Wo.*", "layers.{i}.mixer.output.*"),
    Rename(LAYER + "mlp_norm.*", "layers.{i}.feedforward_norm.*"),
    Split(LAYER + "mlp.Wi.*", ("layers.{i}.feedforward.gate.*", "layers.{i}.feedforward.up.*")),
    Rename(LAYER + "mlp.Wo.*", "layers.{i}.feedforward.down.*"),
    Rename("[model.]final_norm.*", "norm.*"),
    Rename("head.dense.*", "head.dense.*"),
    Rename("head.norm.*", "head.norm.*"),
    OutputHead("decoder.*", "head.output.*"),
)


def sized(layers, dim, heads, hidden, **numbers):
    """The numbers of a config.json that its size is made of, and others by their own names."""
    return dict(
        hidden_size=dim,
        intermediate_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        **numbers,
    )


BASE = sized(layers=22, dim=768, heads=12, hidden=1152, vocab_size=50368)
LARGE = sized(layers=28, dim=1024, heads=16, hidden=2624, vocab_size=50368)
TINY = sized(layers=4, dim=64, heads=4, hidden=128, vocab_size=256)
TINY |= dict(local_attention=6, max_position_embeddings=128)
POCKET = TINY | dict(hidden_size=128, intermediate_size=256, vocab_size=2048)


@hookimpl
def zoo_architectures():
    yield Architecture(
        name="modernbert",
        base="bert",
        summary="an encoder with rotary positions, a two-sided window in two layers of three, and GEGLU",
        task="fill-mask",
        causality="full",
        model_types=("modernbert",),
        recipe=modernbert,
        weights=WEIGHTS,
        presets=(
            Preset("base", hub="answerdotai/ModernBERT-base", config=BASE, licence="Apache-2.0"),
            Preset("large", hub="answerdotai/ModernBERT-large", config=LARGE, licence="Apache-2.0"),
            Preset("pocket", config=POCKET),
            Preset("tiny", config=TINY),
        ),
        references=("Warner et al., 2024, arXiv:2412.13663",),
        published="2024-12",
    )
