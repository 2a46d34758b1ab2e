"""BLOOM, and attention with linear biases, which Falcon's first models have too. Imports no mlx."""

from dataclasses import field, replace

from zoo.architecture import GGUF, Architecture, Block, Drawing, OutputHead, Preset, Rename, Split, hookimpl
from zoo.frozen import frozen
from zoo.gguf import DECODER
from zoo.recipe import MLP, Attention, Decoder, Embedding, Head, Layer, LayerNorm, repeat
from zoo_neox import QKV


@frozen()
class AlibiAttention(Attention):
    """Attention with ALiBi: a bias that falls linearly with the distance, at another rate in each head (Press et al., 2021).

    On a rank that has some of `whole` heads, `first` is the number of its first head. `rounded`: the biases are rounded to
    bfloat16 and scaled like the scores, as in Falcon's code.
    """

    kind, name = "mixer", "alibi-attention"
    first: int = field(default=0, metadata={"least": 0})
    whole: int = field(default=0, metadata={"least": 0})
    rounded: bool = False

    @property
    def title(self) -> str:
        """The kind of attention, with its biases."""
        return f"{super().title} with linear biases"

    def divided(self, dim, share):
        """Divided by heads. The rate of a head depends on its number among all heads, so each share keeps its first number."""
        division = super().divided(dim, share)
        spec = division.spec.change(first=division.heads[""][0], whole=self.whole or self.heads)
        return replace(division, spec=spec)


# Of training, and of how others compute.
UNUSED = (
    *("hidden_dropout", "slow_but_exact", "n_inner", "offset_alibi", "bias_dropout_fusion"),
    *("attention_softmax_in_fp32", "masked_softmax_fusion", "skip_bias_add", "skip_bias_add_qkv"),
)


def bloom(config):
    """GPT-2's layers with linear biases in the place of positions, and a norm after the embedding (BigScience, 2022)."""
    config.refuse("apply_residual_connection_post_layernorm")
    config.ignore("attention_dropout", "pretraining_tp", *UNUSED)
    config = config.renamed(
        {"n_embed": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads"}
    )
    dim, norm = config.count("hidden_size"), LayerNorm(eps=config.number("layer_norm_epsilon", 1e-5))
    layer = Layer(
        mixer=AlibiAttention(config.count("num_attention_heads"), bias=True, output_bias=True),
        feedforward=MLP(4 * dim, "gelu_tanh"),
        mixer_norm=norm,
        feedforward_norm=norm,
    )
    return Decoder(
        embedding=Embedding(config.count("vocab_size"), dim, norm=norm),
        layers=repeat(layer, config.layers()),
        norm=norm,
        head=Head(tied=config.flag("tie_word_embeddings", True)),
        context=config.count("seq_length", None),
    )


LAYER = "[transformer.]h.{i}."
WEIGHTS = (
    Rename("[transformer.]word_embeddings.*", "embedding.tokens.*"),
    Rename("[transformer.]word_embeddings_layernorm.*", "embedding.norm.*"),
    Rename(LAYER + "input_layernorm.*", "layers.{i}.mixer_norm.*"),
    Split(LAYER + "self_attention.query_key_value.*", QKV, groups="heads"),
    Rename(LAYER + "self_attention.dense.*", "layers.{i}.mixer.output.*"),
    Rename(LAYER + "post_attention_layernorm.*", "layers.{i}.feedforward_norm.*"),
    Rename(LAYER + "mlp.dense_h_to_4h.*", "layers.{i}.feedforward.up.*"),
    Rename(LAYER + "mlp.dense_4h_to_h.*", "layers.{i}.feedforward.down.*"),
    Rename("[transformer.]ln_f.*", "norm.*"),
    OutputHead("lm_head.*", "head.output.*"),
)
GGUF_KEYS = {"context_length": "seq_length", "feed_forward_length": None, "attention.head_count_kv": None}
GGUF_KEYS |= {"attention.layer_norm_epsilon": "layer_norm_epsilon"}
GGUF_WEIGHTS = (
    Rename("token_embd_norm.*", "embedding.norm.*"),
    Split("blk.{i}.attn_qkv.*", QKV),
    *DECODER,
)
POCKET = dict(vocab_size=2048, hidden_size=128, n_layer=4, n_head=4, seq_length=128)


def published(size, name, layers, dim, heads):
    """BLOOM of a size."""
    numbers = dict(vocab_size=250880, hidden_size=dim, n_layer=layers, n_head=heads, seq_length=2048)
    return Preset(size, hub=f"bigscience/{name}", config=numbers, licence="BigScience RAIL 1.0")


@hookimpl
def zoo_blocks():
    """The attention, which is all that GPT-2 lacks."""
    yield Block(AlibiAttention, "zoo_bloom.block:AlibiAttention", "attention with linear biases")


@hookimpl
def zoo_drawings():
    yield Drawing(AlibiAttention, "zoo_bloom.drawing:alibi_attention")


@hookimpl
def zoo_architectures():
    """BLOOM."""
    yield Architecture(
        name="bloom",
        base="gpt2",
        summary="GPT-2 with linear biases of the scores in the place of positions",
        model_types=("bloom",),
        recipe=bloom,
        weights=WEIGHTS,
        gguf=GGUF("bloom", GGUF_WEIGHTS, keys=GGUF_KEYS),
        presets=(
            published("560m", "bloom-560m", 24, 1024, 16),
            published("1b1", "bloom-1b1", 24, 1536, 16),
            published("1b7", "bloom-1b7", 24, 2048, 16),
            published("3b", "bloom-3b", 30, 2560, 32),
            published("7b1", "bloom-7b1", 30, 4096, 32),
            published("176b", "bloom", 70, 14336, 112),
            Preset("pocket", config=POCKET),
            Preset("tiny", config=POCKET | dict(vocab_size=256, hidden_size=48, n_layer=3, n_head=6)),
        ),
        references=("BigScience Workshop, 2022, arXiv:2211.05100", "Press et al., 2021, arXiv:2108.12409"),
        published="2022-11",
    )
