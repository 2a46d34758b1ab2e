"""Qwen3-Next: gated delta rule in three layers of four, gated attention in the fourth, many experts. Imports no mlx."""

from zoo.architecture import (
    Architecture,
    Block,
    Depthwise,
    Drawing,
    Ignore,
    ModuleProbe,
    OfBlock,
    Preset,
    Rename,
    Split,
    hookimpl,
)
from zoo.gguf import Added
from zoo.recipe import GatedMLP
from zoo_deepseek import prediction_layer, prediction_record
from zoo_deepseek.rules import OnlyPredictionLayer
from zoo_gemma import OffsetRMSNorm
from zoo_llama import TINY as LLAMA_TINY
from zoo_llama import llama, published, sized
from zoo_mixtral import QWEN_MLX_WEIGHTS, QWEN_WEIGHTS, SMALL_EXPERTS, qwen_moe
from zoo_qwen3_next.specs import GatedAttention, GatedDeltaNet


def qwen3_next(config):
    """Qwen3-MoE with two kinds of mixer, gates on both, and norms around one (Qwen, 2025)."""
    config = config.with_defaults(
        **dict(
            num_key_value_heads=2, head_dim=256, partial_rotary_factor=0.25, max_position_embeddings=32768
        ),
        **dict(num_experts_per_tok=10, moe_intermediate_size=512, shared_expert_intermediate_size=512),
        norm_topk_prob=True,
    )
    config.refuse("use_sliding_window")
    config.ignore("mtp_num_hidden_layers", "mtp_use_dedicated_embeddings")  # of a layer that drafts
    config.ignore(
        "decoder_sparse_step", "mlp_only_layers", "num_experts_per_tok"
    )  # where there are no experts
    recipe, count = llama(config), config.layers()
    norm, plain = OffsetRMSNorm(eps=config.number("rms_norm_eps", 1e-6)), recipe.layers[0]
    every = config.count("full_attention_interval", 4)
    default = ["linear_attention" if (index + 1) % every else "full_attention" for index in range(count)]
    types = config.choices("layer_types", ("linear_attention", "full_attention"), count, default)
    attention = {
        name: getattr(plain.mixer, name)
        for name in ("heads", "kv_heads", "head_dim", "bias", "output_bias", "rope")
    }
    mixers = {
        "full_attention": GatedAttention(**attention, query_norm=norm, key_norm=norm),
        "linear_attention": delta_net(config, norm.eps),
    }
    shared = GatedMLP(
        config.count("shared_expert_intermediate_size"), config.activation("hidden_act", "silu")
    )
    sparse = qwen_moe(config, config.count("num_experts", 512, least=0), shared=shared, shared_gate=True)
    return recipe.change(norm=norm).change_layers(
        lambda index, layer: dict(
            mixer=mixers[types[index]],
            mixer_norm=norm,
            feedforward=sparse.get(index, layer.feedforward),
            feedforward_norm=norm,
        )
    )


def delta_net(config, eps):
    """The mixer of layers without attention."""
    return GatedDeltaNet(
        heads=config.count("linear_num_value_heads", 32),
        key_heads=config.count("linear_num_key_heads", 16),
        key_dim=config.count("linear_key_head_dim", 128),
        value_dim=config.count("linear_value_head_dim", 128),
        kernel=config.count("linear_conv_kernel_dim", 4),
        activation=config.activation("hidden_act", "silu"),
        eps=eps,
    )


LAYER, MIXER = "[model.]layers.{i}.", "layers.{i}.mixer."
DELTA = LAYER + "linear_attn."


def rules(axis):
    """What both layouts have beside Qwen's mixtures; `axis` is where the convolution's one input channel stands."""
    parts = ("q", "k", "v", "z")
    sizes = ("key_dim", "key_dim", "group_values", "group_values")
    projections = (
        # The rows are grouped by key head.
        Split(
            DELTA + "in_proj_qkvz.*",
            tuple(f"{MIXER}{part}.*" for part in parts),
            sizes=sizes,
            groups="key_heads",
        ),
        Split(DELTA + "in_proj_ba.*", (MIXER + "beta.*", MIXER + "alpha.*"), groups="key_heads"),
    )
    return OfBlock(GatedDeltaNet, projections), *common(axis)


def common(axis):
    """What families have in common whose projections are fused in different ways."""
    delta_net = (
        Depthwise(DELTA + "conv1d.weight", MIXER + "convolution.weight", axis=axis),
        *(Rename(DELTA + name, MIXER + name) for name in ("dt_bias", "A_log")),
        Rename(DELTA + "norm.weight", MIXER + "gain"),
        Rename(DELTA + "out_proj.*", MIXER + "output.*"),
    )
    return (
        OfBlock(GatedDeltaNet, delta_net),
        # Of each head in turn.
        Split(LAYER + "self_attn.q_proj.*", (MIXER + "query.*", MIXER + "gate.*"), groups="heads"),
        Ignore("mtp.*"),  # a layer that drafts
    )


def prediction(name, recipe, weights):
    """The prediction layer of a family whose checkpoints hold it below `mtp.`.

    Its mixer is full attention. The formula is DeepSeek-V3's, as vLLM runs it for Qwen3-Next: the layer reads the model's
    hidden states after the final norm, and for later drafts its own states after its norm.
    """

    def layer(config):
        model, key = recipe(config), "mtp_num_hidden_layers"
        config.refuse("mtp_use_dedicated_embeddings")
        if config.count(key, 1, least=0) != 1:
            raise config.error(key, "is not implemented: one layer drafts")
        if not config.has_tensor("mtp.fc.", default=True):
            raise config.error(key, "is more than the files hold: they have no mtp.fc")
        attending = [layer for layer in model.layers if isinstance(layer.mixer, GatedAttention)]
        if not attending:
            raise config.error("layer_types", "has no full_attention, of which the layer that drafts is one")
        return prediction_layer(model, attending[-1])

    own = {"fc": "projection", "pre_fc_norm_embedding": "embedding_norm", "pre_fc_norm_hidden": "hidden_norm"}
    renames = (Rename(f"{a}.*", f"{b}.*") for a, b in own.items())
    return prediction_record(name, layer, (OnlyPredictionLayer("mtp.*", "*"), *renames, *weights))


# MLX conversions hold 1 + w of each norm.
NORMS = {"input_layernorm": "mixer_norm", "post_attention_layernorm": "feedforward_norm"}
NORMS |= {f"self_attn.{part}_norm": f"mixer.{name}_norm" for part, name in (("q", "query"), ("k", "key"))}
MLX_NORMS = (
    Added("[model.]norm.weight", "norm.weight"),
    *(Added(f"{LAYER}{theirs}.weight", f"layers.{{i}}.{ours}.weight") for theirs, ours in NORMS.items()),
)

WEIGHTS = (*rules(1), *QWEN_WEIGHTS)
TINY = (
    LLAMA_TINY
    | SMALL_EXPERTS
    | dict(
        **dict(
            num_hidden_layers=4, head_dim=16, partial_rotary_factor=0.5, shared_expert_intermediate_size=32
        ),
        **dict(
            linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=8, linear_value_head_dim=16
        ),
        **dict(full_attention_interval=2, tie_word_embeddings=False),
    )
)
POCKET = TINY | dict(hidden_size=128, head_dim=32, moe_intermediate_size=64, vocab_size=2048)


@hookimpl
def zoo_blocks():
    yield Block(GatedDeltaNet, "zoo_qwen3_next.block:GatedDeltaNet", "gated delta rule (Gated DeltaNet)")
    yield Block(GatedAttention, "zoo_qwen3_next.block:GatedAttention", "attention with a gate on its output")


@hookimpl
def zoo_drawings():
    yield Drawing(GatedDeltaNet, "zoo_qwen3_next.drawing:gated_delta_net")
    yield Drawing(GatedAttention, "zoo_qwen3_next.drawing:gated_attention")


@hookimpl
def zoo_probes():
    yield ModuleProbe("zoo_qwen3_next.block:GatedDeltaNet", "zoo_qwen3_next.probe:GatedDeltaNetProbe")
    yield ModuleProbe("zoo_qwen3_next.block:GatedAttention", "zoo_qwen3_next.probe:GatedAttentionProbe")


@hookimpl
def zoo_architectures():
    yield Architecture(
        name="qwen3-next",
        base="qwen3-moe",
        summary="a gated delta rule in three layers of four, gated attention in the fourth, 512 small experts",
        model_types=("qwen3_next",),
        recipe=qwen3_next,
        weights=WEIGHTS,
        mlx_weights=(*rules(2), *MLX_NORMS, *QWEN_MLX_WEIGHTS),
        presets=(
            published(
                "80b-a3b",
                "Qwen/Qwen3-Next-80B-A3B-Instruct",
                "Apache-2.0",
                **sized(layers=48, dim=2048, heads=16, kv_heads=2, hidden=5120),
                **dict(head_dim=256, partial_rotary_factor=0.25, full_attention_interval=4),
                **dict(linear_num_value_heads=32, linear_num_key_heads=16, linear_conv_kernel_dim=4),
                **dict(linear_key_head_dim=128, linear_value_head_dim=128),
                **dict(num_experts=512, num_experts_per_tok=10, norm_topk_prob=True),
                **dict(moe_intermediate_size=512, shared_expert_intermediate_size=512),
                **dict(vocab_size=151936, max_position_embeddings=262144, rope_theta=10000000.0),
            ),
            Preset("pocket", config=POCKET),
            Preset("tiny", config=TINY),
        ),
        references=(
            'Qwen Team, 2025, "Qwen3-Next: Towards Ultimate Training & Inference Efficiency"',
            "Yang et al., 2024, arXiv:2412.06464",
            "Qiu et al., 2025, arXiv:2505.06708",
        ),
        published="2025-09",
        prediction=prediction("qwen3-next", qwen3_next, WEIGHTS),
    )
