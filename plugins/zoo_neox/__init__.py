"""GPT-NeoX and Pythia, as a difference from LLaMA. Imports no mlx."""

from zoo.architecture import GGUF, Architecture, Ignore, OutputHead, Preset, Rename, Split, hookimpl
from zoo.gguf import DECODER
from zoo.recipe import MLP, LayerNorm, RoPE
from zoo_llama import POCKET, TINY, llama


def gpt_neox(config):
    """Parallel residuals, LayerNorm and biases, rotary positions on a part of each head (Black et al., 2022)."""
    # Of training, and of classifiers.
    config.ignore(
        "hidden_dropout", "classifier_dropout", "attention_probs_dropout_prob", "hidden_dropout_prob"
    )
    config = config.renamed({"partial_rotary_factor": "rotary_pct", "rope_theta": "rotary_emb_base"})
    config = config.with_defaults(rotary_pct=0.25, attention_bias=True, hidden_act="gelu")
    config = config.replaced(num_key_value_heads=None)  # each head has its own keys, whatever it says
    norm = LayerNorm(eps=config.number("layer_norm_eps", 1e-5))
    rope = RoPE.of(config, theta_key="rotary_emb_base", partial_key="rotary_pct")
    parallel = config.flag("use_parallel_residual", True)
    return with_layer_norms(llama(config, rope), norm).change_layers(parallel=parallel)


def with_layer_norms(recipe, norm):
    """The recipe of a LLaMA with other norms, and a feed-forward with biases and without a gate."""
    return recipe.change_layers(
        lambda index, layer: dict(
            mixer_norm=norm,
            feedforward_norm=norm,
            feedforward=MLP(layer.feedforward.hidden, layer.feedforward.activation),
        )
    ).change(norm=norm)


QKV = tuple(f"layers.{{i}}.mixer.{part}.*" for part in ("query", "key", "value"))


def weights(model, layers, head):
    """The rules of a layout, which differ in what stands before the names."""
    source, target = layers + "{i}.", "layers.{i}."
    return (
        Rename(model + "embed_in.*", "embedding.tokens.*"),
        Rename(source + "input_layernorm.*", target + "mixer_norm.*"),
        # Rows of (heads, 3, head_dim): one after the other, each head's query, key and value.
        Split(source + "attention.query_key_value.*", QKV, groups="heads"),
        Rename(source + "attention.dense.*", target + "mixer.output.*"),
        Rename(source + "post_attention_layernorm.*", target + "feedforward_norm.*"),
        Rename(source + "mlp.dense_h_to_4h.*", target + "feedforward.up.*"),
        Rename(source + "mlp.dense_4h_to_h.*", target + "feedforward.down.*"),
        Rename(model + "final_layer_norm.*", "norm.*"),
        OutputHead(head + "embed_out.*", "head.output.*"),
        # Masks, and frequencies that are computed.
        *(Ignore(source + "attention." + name) for name in ("bias", "masked_bias", "rotary_emb.inv_freq")),
    )


# llama.cpp's converter puts the rows of all heads' queries first, then keys, then values.
GGUF_WEIGHTS = (Split("blk.{i}.attn_qkv.*", QKV), *DECODER)
GGUF_KEYS = {"use_parallel_residual": "use_parallel_residual"}


def whole_heads(config, tensors):
    """That all of a head is turned, where a file does not say otherwise."""
    return dict(partial_rotary_factor=config.get("partial_rotary_factor", 1.0))


def pythia(size, layers, dim, heads, vocab=50304):
    """Pythia of a size."""
    numbers = dict(hidden_size=dim, intermediate_size=4 * dim, num_hidden_layers=layers, vocab_size=vocab)
    numbers |= dict(num_attention_heads=heads, rotary_pct=0.25, max_position_embeddings=2048)
    hub = f"EleutherAI/pythia-{size}"
    return Preset(size, hub=hub, config=numbers, licence="Apache-2.0", aliases=(f"pythia-{size}",))


NEOX_20B = dict(
    vocab_size=50432,
    hidden_size=6144,
    intermediate_size=24576,
    num_hidden_layers=44,
    num_attention_heads=64,
    rotary_pct=0.25,
    max_position_embeddings=2048,
)
HEADS = dict(num_key_value_heads=4, rotary_pct=0.5)


@hookimpl
def zoo_architectures():
    """GPT-NeoX, of which Pythia is a family of sizes."""
    yield Architecture(
        name="gpt-neox",
        base="gpt2",
        summary="attention and feed-forward side by side, rotary positions on a quarter of each head",
        model_types=("gpt_neox",),
        recipe=gpt_neox,
        weights=weights("[gpt_neox.]", "[gpt_neox.]layers.", ""),
        mlx_weights=weights("model.", "model.h.", "model."),
        gguf=GGUF("gptneox", GGUF_WEIGHTS, keys=GGUF_KEYS, config=whole_heads),
        presets=(
            pythia("70m", 6, 512, 8),
            pythia("160m", 12, 768, 12),
            pythia("410m", 24, 1024, 16),
            pythia("1b", 16, 2048, 8),
            pythia("1.4b", 24, 2048, 16),
            pythia("2.8b", 32, 2560, 32),
            pythia("6.9b", 32, 4096, 32, vocab=50432),
            pythia("12b", 36, 5120, 40, vocab=50688),
            Preset(
                "20b",
                hub="EleutherAI/gpt-neox-20b",
                config=NEOX_20B | dict(hidden_act="gelu_fast"),
                licence="Apache-2.0",
            ),
            Preset("pocket", config=POCKET | HEADS),
            Preset("tiny", config=TINY | HEADS),
        ),
        references=("Black et al., 2022, arXiv:2204.06745", "Biderman et al., 2023, arXiv:2304.01373"),
        published="2022-04",
    )
