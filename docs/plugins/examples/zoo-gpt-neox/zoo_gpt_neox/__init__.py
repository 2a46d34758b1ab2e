"""GPT-NeoX and Pythia: attention beside the feed-forward, a quarter of each head turned. Imports no mlx."""

from zoo.architecture import Architecture, Ignore, OutputHead, Preset, Rename, Split, hookimpl
from zoo.recipe import MLP, Attention, Decoder, Embedding, Head, Layer, LayerNorm, RoPE, repeat


def gpt_neox(config):
    """Parallel residuals, biases everywhere, rotary positions on a part of each head (Black et al., 2022)."""
    config.ignore("attention_dropout", "hidden_dropout", "classifier_dropout")  # of training
    config.ignore("attention_probs_dropout_prob", "hidden_dropout_prob")
    config = config.with_defaults(rotary_pct=0.25)
    bias, head_dim = config.flag("attention_bias", True), config.head_width()
    norm = LayerNorm(eps=config.number("layer_norm_eps", 1e-5))
    return Decoder(
        embedding=Embedding(vocab=config.count("vocab_size"), dim=config.count("hidden_size")),
        layers=repeat(
            Layer(
                mixer=Attention(
                    heads=config.count("num_attention_heads"),
                    bias=bias,
                    output_bias=bias,
                    rope=RoPE.of(config, head_dim, theta_key="rotary_emb_base", partial_key="rotary_pct"),
                ),
                feedforward=MLP(
                    hidden=config.count("intermediate_size"),
                    activation=config.activation("hidden_act", "gelu"),
                ),
                mixer_norm=norm,
                feedforward_norm=norm,
                parallel=config.flag("use_parallel_residual", True),
            ),
            config.layers(),
        ),
        norm=norm,
        head=Head(tied=config.flag("tie_word_embeddings", False)),
        context=config.count("max_position_embeddings", 2048),
    )


def weights(model, layers, head):
    """The rules of a layout, which differ in what stands before the names."""
    source, target = layers + "{i}.", "layers.{i}."
    return (
        Rename(model + "embed_in.*", "embedding.tokens.*"),
        Rename(source + "input_layernorm.*", target + "mixer_norm.*"),
        # Rows of (heads, 3, head_dim): one after the other, each head's query, key and value.
        Split(
            source + "attention.query_key_value.*",
            tuple(target + f"mixer.{part}.*" for part in ("query", "key", "value")),
            groups="heads",
        ),
        Rename(source + "attention.dense.*", target + "mixer.output.*"),
        Rename(source + "post_attention_layernorm.*", target + "feedforward_norm.*"),
        Rename(source + "mlp.dense_h_to_4h.*", target + "feedforward.up.*"),
        Rename(source + "mlp.dense_4h_to_h.*", target + "feedforward.down.*"),
        Rename(model + "final_layer_norm.*", "norm.*"),
        OutputHead(head + "embed_out.*", "head.output.*"),
        # What the first releases carry beside the weights: masks, and frequencies that are computed.
        *(Ignore(source + "attention." + name) for name in ("bias", "masked_bias", "rotary_emb.inv_freq")),
    )


TINY = dict(
    vocab_size=128,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    rotary_pct=0.5,
    max_position_embeddings=64,
)


def pythia(size, dim, layers, heads):
    """A preset with the numbers of one of EleutherAI's checkpoints."""
    numbers = dict(hidden_size=dim, intermediate_size=4 * dim, num_hidden_layers=layers)
    numbers |= dict(num_attention_heads=heads, vocab_size=50304, rotary_pct=0.25, rotary_emb_base=10000)
    return Preset(f"pythia-{size}", hub=f"EleutherAI/pythia-{size}", config=numbers)


@hookimpl
def zoo_architectures():
    """GPT-NeoX, of which Pythia is a family of sizes."""
    yield Architecture(
        name="gpt-neox",
        summary="attention and feed-forward side by side, a quarter of each head turned",
        model_types=("gpt_neox",),
        recipe=gpt_neox,
        weights=weights("[gpt_neox.]", "[gpt_neox.]layers.", ""),
        mlx_weights=weights("model.", "model.h.", "model."),
        presets=(
            pythia("160m", 768, 12, 12),
            pythia("1.4b", 2048, 24, 16),
            Preset("tiny", config=TINY),
            Preset("sequential", config=TINY | dict(use_parallel_residual=False, attention_bias=False)),
        ),
        references=("Black et al., 2022, arXiv:2204.06745", "Biderman et al., 2023, arXiv:2304.01373"),
        published="2022-04",
        api=1,
    )
