"""gpt-oss, as a difference from LLaMA, and the specs of its own blocks. Imports no mlx.

Axes: E experts, F hidden, I inputs of a matrix, O its outputs, G groups of 32 inputs, H heads.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any

from zoo.architecture import (
    GGUF,
    Architecture,
    Block,
    Drawing,
    ModuleProbe,
    Preset,
    Rename,
    Rule,
    Split,
    Transpose,
    hookimpl,
    pocket,
)
from zoo.errors import CheckpointError
from zoo.frozen import frozen
from zoo.gguf import DECODER, MOE
from zoo.recipe import Attention, Cut, Division, Experts, MoE, Router, Share
from zoo.weights import Join, Tensors, matches
from zoo_llama import POCKET, TINY, WEIGHTS, layer_windows, llama, published, sized

GROUP = 32  # numbers that share a scale in MXFP4


@frozen()
class Gather(Rule):
    """MXFP4 as released, under the name and in the orientation of the unpacked checkpoint, (E, in, out).

    `{name}_blocks` (E, O, G, 16) holds two 4-bit floats a byte, the low half first; `{name}_scales` (E, O, G) the
    exponents, 127 more than they mean (OCP Microscaling Formats, version 1.0, sections 5.3 and 6.3). Later rules
    take the result, and it is not written back in this form.
    """

    source: str

    def forward(self, source: Tensors, target: Tensors, recipe: Any, join: Join) -> None:
        for name, _ in matches(self.source + "_blocks", source):
            whole = name.removesuffix("_blocks")
            if whole + "_scales" in source:
                source[whole] = gathered(name, source.pop(name), source.pop(whole + "_scales"))

    def backward(self, source: Tensors, target: Tensors, recipe: Any, join: Join) -> None:
        pass


def gathered(name: str, blocks: Any, scales: Any) -> Any:
    """The matrices, packed, shown as (E, I, O); CheckpointError when the two do not belong together."""
    import mlx.core as mx

    from zoo.checkpoint.quantized_matrix import QuantizationSpec, QuantizedMatrix

    fits = len(blocks.shape) == 4 and blocks.shape[-1] == GROUP // 2 and blocks.shape[:-1] == scales.shape
    if not fits or (blocks.dtype, scales.dtype) != (mx.uint8, mx.uint8):
        shapes = f"{tuple(blocks.shape)} {blocks.dtype} and {tuple(scales.shape)} {scales.dtype}"
        raise CheckpointError(f"{name}: no MXFP4 blocks and scales: {shapes}")
    packed = blocks.flatten(-2).view(mx.uint32)  # (E, O, 4G): eight numbers each
    return QuantizedMatrix(name, packed, scales, None, QuantizationSpec(4, GROUP, "mxfp4"), swapped=True)


@frozen()
class SinkAttention(Attention):
    """Attention whose softmax has one more column, a learned score a head, which holds no value.

    A head that finds nothing puts its weight there (OpenAI, 2025; Xiao et al., 2023). Parameter: `sinks` (H,).
    """

    kind, name = "mixer", "sink-attention"

    def own_parameters(self, dim: int) -> int:
        return super().own_parameters(dim) + self.heads

    def divided(self, dim: int, share: Share) -> Division:
        """By heads, each with its sink."""
        division = super().divided(dim, share)
        return replace(division, cuts={**division.cuts, "sinks": Cut(0, (division.heads[""],))})

    @property
    def title(self) -> str:
        """The kind of attention, with sinks."""
        return f"{super().title} with sinks"


@frozen()
class ClippedExperts(Experts):
    """Experts joined by (up + 1) · gate · σ(alpha · gate), gate ≤ `limit` and −`limit` ≤ up ≤ `limit`."""

    kind, name = "experts", "clipped-gated-mlp"
    divided = Experts.divided
    limit: float = field(default=7.0, metadata={"above": 0})
    alpha: float = 1.702

    @property
    def title(self) -> str:
        """Their gate is not any activation's alone."""
        return "clipped gated experts"


YARN = dict(
    rope_type="yarn",
    factor=32.0,
    original_max_position_embeddings=4096,
    beta_fast=32.0,
    beta_slow=1.0,
    truncate=False,
)


def gpt_oss(config):
    """LLaMA with attention sinks, a window in every other layer, and experts with clipped gates (OpenAI, 2025)."""
    alternate = [("sliding_attention", "full_attention")[index % 2] for index in range(config.layers())]
    config = config.with_defaults(
        head_dim=64,
        num_key_value_heads=8,
        num_local_experts=128,
        num_experts_per_tok=4,
        attention_bias=True,
        rms_norm_eps=1e-5,
        rope_theta=150000.0,
        max_position_embeddings=131072,
        use_sliding_window=True,
        sliding_window=128,
        layer_types=alternate,
    )
    spellings = ("rope_scaling", "rope_parameters")
    if not any(key in config or config.is_null(key) for key in spellings):  # null: no scaling
        config = config.with_defaults(rope_parameters=YARN)
    # Configs have the key, but the experts have an activation of their own.
    config.choice("hidden_act", ("silu",), "silu")
    # The released names of num_experts_per_tok and of the scaling's original_max_position_embeddings.
    config.ignore("experts_per_token", "initial_context_length")
    config.ignore("output_router_logits", "router_aux_loss_coef")
    windows, feedforward = layer_windows(config), moe(config)
    return llama(config).change_layers(
        lambda index, layer: dict(
            mixer=SinkAttention(**vars(layer.mixer) | dict(window=windows[index])), feedforward=feedforward
        )
    )


def moe(config):
    """Biased experts and router; the chosen experts' logits alone go through the softmax."""
    count, top_k = config.count("num_local_experts"), config.count("num_experts_per_tok")
    if top_k > count:
        raise config.error("num_experts_per_tok", f"is more than the {count} experts")
    limit = config.number("swiglu_limit", 7.0)
    if limit <= 0:
        raise config.error("swiglu_limit", "must be positive")
    return MoE(
        router=Router(experts=count, top_k=top_k, bias=True),
        experts=ClippedExperts(
            count=count,
            hidden=config.count("intermediate_size"),
            bias=True,
            limit=limit,
            alpha=config.number("swiglu_alpha", 1.702),
        ),
    )


LAYER = "[model.]layers.{i}."
EXPERTS = "layers.{i}.feedforward.experts."
WEIGHT, BIAS = ((f"{EXPERTS}gate.{part}", f"{EXPERTS}up.{part}") for part in ("weight", "bias"))

COMMON = (
    *WEIGHTS,
    Rename(LAYER + "self_attn.sinks", "layers.{i}.mixer.sinks"),
    Rename(LAYER + "mlp.router.*", "layers.{i}.feedforward.router.scores.*"),
)
HF_WEIGHTS = (
    *COMMON,
    Gather(LAYER + "mlp.experts.{p}"),
    # Gate and up in turn, one output of each.
    Split(LAYER + "mlp.experts.gate_up_proj", WEIGHT, transpose=True, axis=1, groups="hidden"),
    Split(LAYER + "mlp.experts.gate_up_proj_bias", BIAS, axis=1, groups="hidden"),
    Transpose(LAYER + "mlp.experts.down_proj", EXPERTS + "down.weight"),
    Rename(LAYER + "mlp.experts.down_proj_bias", EXPERTS + "down.bias"),
)
MLX_WEIGHTS = (*COMMON, Rename(LAYER + "mlp.experts.{p}_proj.*", EXPERTS + "{p}.*"))


GPT_OSS_GGUF = GGUF(
    "gpt-oss",
    (
        Rename("blk.{i}.attn_sinks.weight", "layers.{i}.mixer.sinks"),
        Rename("blk.{i}.post_attention_norm.*", "layers.{i}.feedforward_norm.*"),
        *MOE,
        *DECODER,
    ),
    keys={"expert_count": "num_local_experts", "expert_feed_forward_length": "intermediate_size"},
    # The scaling of positions, of which a file does not say that its bounds are no whole dimensions.
    config=lambda config, tensors: dict(
        rope_scaling=config.get("rope_scaling") and {**config["rope_scaling"], "truncate": False}
    ),
)

# 2.8 million parameters, of which a token uses one million.
GPT_OSS_POCKET = POCKET | dict(
    head_dim=32,
    intermediate_size=192,
    num_local_experts=8,
    num_experts_per_tok=2,
    sliding_window=16,
    rope_theta=10000.0,
    rope_scaling=YARN | dict(factor=2.0, original_max_position_embeddings=64),
)


@hookimpl
def zoo_blocks():
    yield Block(
        SinkAttention, "zoo_gpt_oss.block:SinkAttention", "attention with a learned sink for each head"
    )
    yield Block(ClippedExperts, "zoo_gpt_oss.block:ClippedExperts", "gated experts with clipped gate and up")


@hookimpl
def zoo_drawings():
    yield Drawing(SinkAttention, "zoo_gpt_oss.drawing:sink_attention")
    yield Drawing(ClippedExperts, "zoo_gpt_oss.drawing:clipped_experts")


# The published checkpoint of 20 billion parameters.
GPT_OSS = sized(layers=24, dim=2880, heads=64, kv_heads=8, hidden=2880) | dict(
    head_dim=64,
    num_local_experts=32,
    num_experts_per_tok=4,
    sliding_window=128,
    swiglu_limit=7.0,
    attention_bias=True,
    vocab_size=201088,
    max_position_embeddings=131072,
    rms_norm_eps=1e-5,
    rope_theta=150000.0,
    rope_scaling=YARN,
)


@hookimpl
def zoo_architectures():
    yield Architecture(
        name="gpt-oss",
        base="llama",
        summary="attention sinks, a window in every other layer, experts with clipped gates",
        model_types=("gpt_oss",),
        recipe=gpt_oss,
        weights=HF_WEIGHTS,
        mlx_weights=MLX_WEIGHTS,
        gguf=GPT_OSS_GGUF,
        presets=(
            pocket(__file__, "gpt-oss", **GPT_OSS_POCKET),
            published(
                "20b",
                "openai/gpt-oss-20b",
                "Apache-2.0",
                **GPT_OSS,
            ),
            published(
                "120b",
                "openai/gpt-oss-120b",
                "Apache-2.0",
                **GPT_OSS | dict(num_hidden_layers=36, num_local_experts=128),
            ),
            Preset(
                "tiny",
                config=TINY | dict(head_dim=16, num_local_experts=4, num_experts_per_tok=2, sliding_window=6),
            ),
        ),
        references=("OpenAI, 2025, arXiv:2508.10925",),
        published="2025-08",
    )


@hookimpl
def zoo_probes():
    yield ModuleProbe("zoo_gpt_oss.block:SinkAttention", "zoo_gpt_oss.probe:SinkAttentionProbe")
