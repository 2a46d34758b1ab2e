"""GPT-2 as released (Pre-LN), the same with Post-LN, and the first GPT. Imports no mlx."""

from zoo.architecture import (
    GGUF,
    Architecture,
    Ignore,
    OutputHead,
    Preset,
    Rename,
    Split,
    Transpose,
    hookimpl,
    pocket,
)
from zoo.gguf import DECODER
from zoo.recipe import MLP, Attention, Decoder, Embedding, Head, Layer, LayerNorm, LearnedPositions, repeat


def gpt2(config):
    """Learned positions, Pre-LN, GELU, a final norm, a tied head (Radford et al., 2019)."""
    config.refuse("add_cross_attention")
    activation = config.activation("activation_function", "gelu_new")
    recipe = gpt_layers(config, "pre", activation)
    if config.flag("scale_attn_by_inverse_layer_idx", False):
        scale = recipe.layers[0].mixer.scale
        recipe = recipe.change_layers(lambda index, layer: dict(mixer=dict(scale=scale / (index + 1))))
    return recipe


def gpt2_postln(config):
    """GPT-2 with LayerNorm after each residual sum and, its output being normal, no final norm."""
    return gpt2(config).change(norm=None).change_layers(placement="post")


def gpt(config):
    """The first GPT: Post-LN, no final norm (Radford et al., 2018)."""
    # Its "gelu" is the tanh approximation, unlike that of later configs.
    activation = {"gelu": "gelu_tanh"}.get(config.get("afn", "gelu")) or config.activation("afn")
    return gpt_layers(config, "post", activation).change(norm=None)


# Of training, of classifiers, and of how torch computes.
UNUSED = (
    *("embd_pdrop", "attn_pdrop", "resid_pdrop", "reorder_and_upcast_attn"),
    *("summary_type", "summary_use_proj", "summary_activation"),
    *("summary_proj_to_labels", "summary_first_dropout"),
)


# Other names of a config's keys, as transformers reads them.
NAMES = {"hidden_size": "n_embd", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer"}
NAMES |= {"max_position_embeddings": "n_positions"}


def gpt_layers(config, placement, activation):
    """The recipe that all three share."""
    config = config.renamed(NAMES)
    dim, heads = config.count("n_embd"), config.count("n_head")
    head_dim = config.head_width("n_embd", "n_head")
    norm = LayerNorm(eps=config.number("layer_norm_epsilon", 1e-5))
    context = config.count("n_positions", config.count("n_ctx", 1024))
    config.count("n_ctx", context)  # another name of the same number
    config.ignore(*UNUSED)
    layer = Layer(
        placement=placement,
        mixer_norm=norm,
        mixer=Attention(
            heads=heads,
            bias=True,
            output_bias=True,
            scale=head_dim**-0.5 if config.flag("scale_attn_weights", True) else 1.0,
        ),
        feedforward_norm=norm,
        feedforward=MLP(hidden=config.count("n_inner", 4 * dim), activation=activation),
    )
    return Decoder(
        embedding=Embedding(vocab=config.count("vocab_size"), dim=dim, positions=LearnedPositions(context)),
        layers=repeat(layer, config.layers("n_layer")),
        norm=norm,
        head=Head(tied=config.flag("tie_word_embeddings", True)),
        context=context,
    )


# The three parts of a joined projection.
QKV_WEIGHTS, QKV_BIASES = (
    tuple(f"layers.{{i}}.mixer.{part}.{kind}" for part in ("query", "key", "value"))
    for kind in ("weight", "bias")
)


def weights(prefix, tokens, positions, matrix):
    """The rules of all three: `matrix` is Transpose for OpenAI's (in, out) matrices, Rename for (out, in)."""
    layer = prefix + "h.{i}."
    return (
        Rename(f"{prefix}{tokens}.weight", "embedding.tokens.weight"),
        Rename(f"{prefix}{positions}.weight", "embedding.positions.weight"),
        Rename(layer + "ln_1.*", "layers.{i}.mixer_norm.*"),
        Split(layer + "attn.c_attn.weight", QKV_WEIGHTS, transpose=matrix is Transpose),
        Split(layer + "attn.c_attn.bias", QKV_BIASES),
        matrix(layer + "attn.c_proj.weight", "layers.{i}.mixer.output.weight"),
        Rename(layer + "attn.c_proj.bias", "layers.{i}.mixer.output.bias"),
        Rename(layer + "ln_2.*", "layers.{i}.feedforward_norm.*"),
        matrix(layer + "mlp.c_fc.weight", "layers.{i}.feedforward.up.weight"),
        Rename(layer + "mlp.c_fc.bias", "layers.{i}.feedforward.up.bias"),
        matrix(layer + "mlp.c_proj.weight", "layers.{i}.feedforward.down.weight"),
        Rename(layer + "mlp.c_proj.bias", "layers.{i}.feedforward.down.bias"),
        Rename(f"{prefix}ln_f.*", "norm.*"),
        OutputHead("lm_head.*", "head.output.*"),
        Ignore(layer + "attn.bias"),
        Ignore(layer + "attn.masked_bias"),
    )


GPT2_WEIGHTS = weights("[transformer.]", "wte", "wpe", Transpose)
GPT2_MLX_WEIGHTS = weights("[model.]", "wte", "wpe", Rename)
GPT_WEIGHTS = weights("[transformer.]", "tokens_embed", "positions_embed", Transpose)
GPT_MLX_WEIGHTS = weights("[transformer.]", "tokens_embed", "positions_embed", Rename)

GPT2_GGUF = GGUF(
    "gpt2",
    (
        Rename("position_embd.weight", "embedding.positions.weight"),
        Split("blk.{i}.attn_qkv.weight", QKV_WEIGHTS),
        Split("blk.{i}.attn_qkv.bias", QKV_BIASES),
        *DECODER,
    ),
    keys={
        "context_length": "n_positions",
        "embedding_length": "n_embd",
        "block_count": "n_layer",
        "attention.head_count": "n_head",
        "feed_forward_length": "n_inner",
        "attention.layer_norm_epsilon": "layer_norm_epsilon",
    },
)

POCKET = dict(vocab_size=2048, n_embd=128, n_layer=4, n_head=4, n_positions=64)
TINY = POCKET | dict(vocab_size=256, n_embd=64, n_layer=3)
SMALL = dict(vocab_size=50257, n_embd=768, n_layer=12, n_head=12, n_positions=1024)


@hookimpl
def zoo_architectures():
    yield Architecture(
        name="gpt2",
        base="gpt",
        summary="learned positions, Pre-LN, GELU, tied head, as released",
        model_types=("gpt2",),
        recipe=gpt2,
        weights=GPT2_WEIGHTS,
        mlx_weights=GPT2_MLX_WEIGHTS,
        gguf=GPT2_GGUF,
        presets=(
            pocket(__file__, "gpt2", **POCKET),
            Preset("small", hub="openai-community/gpt2", config=SMALL, licence="MIT"),
            Preset("tiny", config=TINY),
        ),
        references=("Radford et al., 2019, Language Models are Unsupervised Multitask Learners",),
        published="2019-02",
    )
    yield Architecture(
        name="gpt2-postln",
        base="gpt2",
        summary="GPT-2 with LayerNorm after each residual sum, to compare with",
        model_types=("gpt2-postln",),
        recipe=gpt2_postln,
        weights=GPT2_WEIGHTS,
        mlx_weights=GPT2_MLX_WEIGHTS,
        presets=(
            pocket(__file__, "gpt2-postln", **POCKET),
            Preset("small", config=SMALL),
            Preset("tiny", config=TINY),
        ),
        references=("Xiong et al., 2020, arXiv:2002.04745",),
        published="2020-02",
    )
    yield Architecture(
        name="gpt",
        summary="the first GPT: Post-LN, no final norm",
        model_types=("openai-gpt",),
        recipe=gpt,
        weights=GPT_WEIGHTS,
        mlx_weights=GPT_MLX_WEIGHTS,
        presets=(
            Preset(
                "117m",
                hub="openai-community/openai-gpt",
                licence="MIT",
                config=SMALL | dict(vocab_size=40478, n_positions=512),
            ),
            Preset("pocket", config=POCKET),
            Preset("tiny", config=TINY),
        ),
        references=("Radford et al., 2018, Improving Language Understanding by Generative Pre-Training",),
        published="2018-06",
    )
