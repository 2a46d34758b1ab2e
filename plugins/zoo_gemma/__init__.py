"""Gemma 2, as a difference from LLaMA, and the blocks that only it has. Imports no mlx."""

from dataclasses import field

from zoo.architecture import GGUF, Architecture, Block, Drawing, ModuleProbe, Preset, Rename, hookimpl, pocket
from zoo.frozen import frozen
from zoo.gguf import DECODER, Added
from zoo.recipe import Attention, Decoder, Embedding, GatedMLP, Head, RMSNorm, RoPE, Spec
from zoo_llama import WEIGHTS as LLAMA_WEIGHTS
from zoo_llama import sized, windows_by_type


@frozen()
class OffsetRMSNorm(RMSNorm):
    """Its weight w is the distance of a factor from one, so that decay pulls towards one: x / √(mean(x²) + eps) · (1 + w)."""

    kind, name = "norm", "offset-rmsnorm"

    @property
    def title(self) -> str:
        """RMSNorm, with what is learned."""
        return "RMSNorm (1 + w)"


@frozen()
class SandwichLayer(Spec):
    """x + norm(f(norm(x))), for the mixer and then for the feed-forward: a norm on both sides of each."""

    kind, name = "layer", "sandwich"
    mixer_norm: Spec
    mixer: Spec
    mixer_output_norm: Spec
    feedforward_norm: Spec
    feedforward: Spec
    feedforward_output_norm: Spec

    @property
    def norm_placement(self) -> str:
        """On both sides."""
        return "before and after each part"


@frozen()
class CappedAttention(Attention):
    """Attention with soft-capped scores: cap · tanh(score / cap) before the softmax."""

    kind, name = "mixer", "capped-attention"
    divided = Attention.divided
    cap: float = field(default=50.0, metadata={"above": 0})

    @property
    def title(self) -> str:
        """The kind of attention, with capped scores."""
        return f"{super().title} with capped scores"


@frozen()
class CappedHead(Head):
    """A head with soft-capped logits: cap · tanh(logit / cap)."""

    kind, name = "head", "capped-logits"
    cap: float = field(default=30.0, metadata={"above": 0})


def gemma2(config, rope=None, every=2, caps=(50.0, 30.0)):
    """Sandwich norms, soft-capped scores and logits, windows in every other layer (Gemma Team, 2024).

    Of a family that differs in these: `rope` are its positions; without `layer_types` every `every`-th layer sees all
    tokens; `caps` are the defaults of the caps of scores and of logits, None for no cap.
    """
    # Published beside the keys that count: hidden_activation, nothing, sliding_window.
    config.ignore("hidden_act", "cache_implementation", "sliding_window_size")
    config.ignore("attention_dropout")
    dim, heads = config.count("hidden_size"), config.count("num_attention_heads")
    head_dim, bias = config.count("head_dim", 256), config.flag("attention_bias", False)
    norm = OffsetRMSNorm(eps=config.number("rms_norm_eps", 1e-6))
    attention = dict(
        heads=heads,
        kv_heads=config.kv_heads(4),
        head_dim=head_dim,
        bias=bias,
        output_bias=bias,
        rope=rope or RoPE.of(config, head_dim),
        scale=positive(config, "query_pre_attn_scalar", 256.0) ** -0.5,
    )
    score_cap = cap(config, "attn_logit_softcapping", caps[0])
    layer = SandwichLayer(
        mixer_norm=norm,
        mixer=CappedAttention(**attention, cap=score_cap) if score_cap else Attention(**attention),
        mixer_output_norm=norm,
        feedforward_norm=norm,
        feedforward=GatedMLP(
            hidden=config.count("intermediate_size"),
            activation=config.activation("hidden_activation", "gelu_pytorch_tanh"),
        ),
        feedforward_output_norm=norm,
    )
    tied = config.flag("tie_word_embeddings", True)
    logit_cap = cap(config, "final_logit_softcapping", caps[1])
    return Decoder(
        embedding=Embedding(vocab=config.count("vocab_size"), dim=dim, scale=dim**0.5),
        layers=tuple(layer.change(mixer=dict(window=window)) for window in windows_by_type(config, every)),
        norm=norm,
        head=CappedHead(tied=tied, cap=logit_cap) if logit_cap else Head(tied=tied),
        context=config.count("max_position_embeddings", 8192),
    )


def positive(config, key, default):
    """A number above zero, or the default None."""
    value = config.number(key, default)
    if value is not None and value <= 0:
        raise config.error(key, "must be positive")
    return value


def cap(config, key, default):
    """A soft cap; null means that there is none."""
    return None if config.is_null(key) else positive(config, key, default)


WEIGHTS = (
    Rename("[model.]layers.{i}.post_attention_layernorm.*", "layers.{i}.mixer_output_norm.*"),
    Rename("[model.]layers.{i}.pre_feedforward_layernorm.*", "layers.{i}.feedforward_norm.*"),
    Rename("[model.]layers.{i}.post_feedforward_layernorm.*", "layers.{i}.feedforward_output_norm.*"),
    *LLAMA_WEIGHTS,
)

GEMMA_GGUF = (
    Added("blk.{i}.attn_norm.*", "layers.{i}.mixer_norm.*"),
    Added("blk.{i}.post_attention_norm.*", "layers.{i}.mixer_output_norm.*"),
    Added("blk.{i}.ffn_norm.*", "layers.{i}.feedforward_norm.*"),
    Added("blk.{i}.post_ffw_norm.*", "layers.{i}.feedforward_output_norm.*"),
    Added("output_norm.*", "norm.*"),
    *DECODER,
)


def score_scale(layers):
    """A function to the width whose root divides scores, which no file has: a head's, but in the 27B, of `layers`, D/H."""

    def width(config, tensors):
        if config.get("num_hidden_layers") == layers:
            return dict(query_pre_attn_scalar=config["hidden_size"] / config["num_attention_heads"])
        return dict(query_pre_attn_scalar=config.get("head_dim", 256))

    return width


POCKET = dict(
    **sized(layers=4, dim=128, heads=4, kv_heads=2, hidden=384),
    head_dim=32,
    query_pre_attn_scalar=32,
    sliding_window=16,
    max_position_embeddings=128,
    vocab_size=2048,
)

TINY = POCKET | dict(hidden_size=64, intermediate_size=128, num_hidden_layers=3, head_dim=16, vocab_size=256)

GEMMA2_2B = dict(
    **sized(layers=26, dim=2304, heads=8, kv_heads=4, hidden=9216),
    head_dim=256,
    query_pre_attn_scalar=256,
    sliding_window=4096,
    max_position_embeddings=8192,
    vocab_size=256000,
)


@hookimpl
def zoo_blocks():
    """The blocks that only Gemma 2 has."""
    yield Block(OffsetRMSNorm, "zoo_gemma.block:OffsetRMSNorm", "RMSNorm times (1 + weight)")
    yield Block(
        SandwichLayer,
        "zoo_gemma.block:SandwichLayer",
        "mixer and feed-forward, each with a norm before and after",
    )
    yield Block(CappedAttention, "zoo_gemma.block:CappedAttention", "attention with soft-capped scores")
    yield Block(CappedHead, "zoo_gemma.block:CappedHead", "language model head with soft-capped logits")


@hookimpl
def zoo_drawings():
    yield Drawing(OffsetRMSNorm, "zoo_gemma.drawing:offset_norm")
    yield Drawing(SandwichLayer, "zoo_gemma.drawing:sandwich")
    yield Drawing(CappedAttention, "zoo_gemma.drawing:capped_attention")
    yield Drawing(CappedHead, "zoo_gemma.drawing:capped_head")


@hookimpl
def zoo_architectures():
    """Gemma 2."""
    yield Architecture(
        name="gemma2",
        base="llama",
        summary="sandwich norms, soft-capped scores and logits, windows in every other layer",
        model_types=("gemma2",),
        recipe=gemma2,
        weights=WEIGHTS,
        gguf=GGUF("gemma2", GEMMA_GGUF, config=score_scale(46)),
        presets=(
            pocket(__file__, "gemma2", **POCKET),
            Preset("2b", hub="google/gemma-2-2b", config=GEMMA2_2B, licence="Gemma Terms of Use"),
            Preset(
                "2b-it",
                "answers in English",
                hub="google/gemma-2-2b-it",
                config=GEMMA2_2B,
                licence="Gemma Terms of Use",
                download=5_228_683_776,
            ),
            Preset("tiny", config=TINY),
        ),
        references=("Gemma Team, 2024, arXiv:2408.00118",),
        published="2024-08",
    )


@hookimpl
def zoo_probes():
    yield ModuleProbe("zoo_gemma.block:OffsetRMSNorm", "zoo.inspect.tracing.block_probes:NormProbe")
    yield ModuleProbe("zoo_gemma.block:SandwichLayer", "zoo.inspect.tracing.block_probes:ResidualProbe")
