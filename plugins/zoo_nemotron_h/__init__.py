"""Nemotron-H: each layer is one part, a Mamba-2 mixer, a feed-forward or attention without positions. Imports no mlx."""

from dataclasses import field
from typing import ClassVar

from zoo.architecture import (
    Architecture,
    Block,
    Drawing,
    ModuleProbe,
    OfBlock,
    OutputHead,
    Preset,
    Rename,
    Rule,
    hookimpl,
)
from zoo.frozen import frozen
from zoo.recipe import MLP, Attention, Decoder, Embedding, Head, RMSNorm, Spec
from zoo.weights import fill, matches
from zoo_mamba import MixerLayer
from zoo_mamba2 import StateSpace, mixer_weights, step_limits


@frozen()
class FeedForwardLayer(Spec):
    """x + feedforward(norm(x)), and nothing else."""

    kind, name = "layer", "feedforward-only"
    recurrent: ClassVar[bool] = (
        True  # a cache that counts tokens: a stage of a pipeline may have no other layers
    )
    feedforward: Spec = field(metadata={"kind": "feedforward"})
    feedforward_norm: Spec = field(metadata={"kind": "norm"})

    @property
    def norm_placement(self):
        """Before the feed-forward, the only part."""
        return "before each part"


@frozen()
class OneNorm(Rule):
    """The norm of a layer of one part, which is named after the part."""

    source: str

    def forward(self, source, target, recipe, join):
        for name, values in matches(self.source, source):
            if values["i"].isdecimal() and int(values["i"]) < len(recipe.layers):
                target[f"layers.{values['i']}.{norm_of(recipe, int(values['i']))}.weight"] = source.pop(name)

    def backward(self, source, target, recipe, join):
        for index in range(len(recipe.layers)):
            path = f"layers.{index}.{norm_of(recipe, index)}.weight"
            if path in source:
                target[fill(self.source, {"i": str(index)})] = source.pop(path)


def norm_of(recipe, index):
    """The field of a layer's norm."""
    return "mixer_norm" if isinstance(recipe.layers[index], MixerLayer) else "feedforward_norm"


def nemotron_h(config):
    """Mamba-2 and feed-forwards in turn, and a few layers of attention without positions (NVIDIA, 2025)."""
    if any(step_limits(config).values()):  # transformers and mlx-lm disagree on what it means
        raise config.error("time_step_limit", "is not implemented")
    config.refuse("sliding_window")
    config.refuse("attention_bias")
    config.ignore(*UNUSED)
    norm = RMSNorm(eps=config.number("layer_norm_epsilon", 1e-5))
    heads = config.count("num_attention_heads", 32)
    projections = config.flag("use_bias", False)
    memory = StateSpace(
        heads=config.count("mamba_num_heads", 128),
        head_dim=config.count("mamba_head_dim", 64),
        state=config.count("ssm_state_size", 128),
        groups=config.count("n_groups", 8),
        kernel=config.count("conv_kernel", 4),
        activation=config.activation("mamba_hidden_act", "silu"),
        bias=projections,
        output_bias=projections,
        kernel_bias=config.flag("use_conv_bias", True),
        eps=norm.eps,
    )
    attention = Attention(
        heads=heads,
        kv_heads=config.kv_heads(8),
        head_dim=config.count("head_dim", 128),
    )
    feedforward = MLP(
        hidden=config.count("intermediate_size", 21504),
        activation=config.activation("mlp_hidden_act", "relu2"),
        bias=config.flag("mlp_bias", False),
    )
    wide = config.flag("residual_in_fp32", False)
    layers = {
        "M": MixerLayer(memory, norm, float32_residual=wide),
        "*": MixerLayer(attention, norm, float32_residual=wide),
        "-": FeedForwardLayer(feedforward, norm),
    }
    return Decoder(
        embedding=Embedding(vocab=config.count("vocab_size", 131072), dim=config.count("hidden_size", 4096)),
        layers=tuple(layers[letter] for letter in pattern(config)),
        norm=norm,
        head=Head(tied=config.flag("tie_word_embeddings", False)),
        context=config.count("max_position_embeddings", 4096),
    )


# Of training, of kernels, of mixtures that no layer has, and of the layers that draft.
UNUSED = (
    *("time_step_min", "time_step_max", "time_step_floor", "rescale_prenorm_residual", "hidden_dropout"),
    *("attention_dropout", "num_logits_to_keep", "use_mamba_kernels", "mamba_ssm_cache_dtype", "chunk_size"),
    *(
        "expand",
        "mamba_proj_bias",
        "num_hidden_layers",
        "n_routed_experts",
        "n_shared_experts",
        "norm_topk_prob",
    ),
    *("moe_intermediate_size", "moe_shared_expert_intermediate_size", "moe_shared_expert_overlap", "n_group"),
    *(
        "moe_latent_size",
        "topk_group",
        "num_experts_per_tok",
        "routed_scaling_factor",
        "output_router_logits",
    ),
    *("num_nextn_predict_layers", "mtp_layers_block_type", "mtp_hybrid_override_pattern"),
)
LETTERS = {"linear_attention": "M", "mamba": "M", "full_attention": "*", "attention": "*", "mlp": "-"}


def pattern(config):
    """The part of each layer, by a letter, as published configs write it; transformers 5 writes a list of words."""
    words = config.get("layers_block_type", config.get("layer_types"))
    key = "hybrid_override_pattern" if words is None else "layers_block_type"
    config.ignore("hybrid_override_pattern", "layer_types")
    letters = config.get(key) if words is None else [LETTERS.get(str(word), "?") for word in words]
    if not letters or not set(letters) <= set(LETTERS.values()):
        raise config.error(key, "is not a pattern of the layers that are implemented: M, * and -")
    return letters


MIXER = "layers.{i}.mixer."


def weights(axis):
    """The rules of a layout; `axis` is where the convolution's one input channel stands."""
    return (
        Rename("backbone.embeddings.*", "embedding.tokens.*"),
        OneNorm("backbone.layers.{i}.norm.weight"),
        OfBlock(StateSpace, mixer_weights("backbone.layers.{i}.mixer.", MIXER, axis)),
        *(
            Rename(f"backbone.layers.{{i}}.mixer.{letter}_proj.*", f"{MIXER}{part}.*")
            for letter, part in (("q", "query"), ("k", "key"), ("v", "value"), ("o", "output"))
        ),
        *(
            Rename(f"backbone.layers.{{i}}.mixer.{part}_proj.*", f"layers.{{i}}.feedforward.{part}.*")
            for part in ("up", "down")
        ),
        Rename("backbone.norm_f.*", "norm.*"),
        OutputHead("lm_head.*", "head.output.*"),
    )


NANO = dict(
    model_type="nemotron_h",
    **dict(vocab_size=131072, hidden_size=4480, intermediate_size=15680, max_position_embeddings=131072),
    **dict(num_attention_heads=40, num_key_value_heads=8, head_dim=128, layer_norm_epsilon=1e-5),
    **dict(mamba_num_heads=128, mamba_head_dim=80, ssm_state_size=128, n_groups=8, conv_kernel=4),
    hybrid_override_pattern="M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
)
TINY = dict(
    model_type="nemotron_h",
    **dict(vocab_size=256, hidden_size=64, intermediate_size=128, max_position_embeddings=128),
    **dict(num_attention_heads=4, num_key_value_heads=2, head_dim=16, hybrid_override_pattern="M-*-M"),
    **dict(mamba_num_heads=4, mamba_head_dim=16, ssm_state_size=6, n_groups=2),
)
POCKET = TINY | dict(vocab_size=2048, hidden_size=128, intermediate_size=384, head_dim=32, mamba_num_heads=16)


@hookimpl
def zoo_blocks():
    yield Block(
        FeedForwardLayer,
        "zoo_nemotron_h.block:FeedForwardLayer",
        "pre-norm residual around a feed-forward alone",
    )


@hookimpl
def zoo_drawings():
    yield Drawing(FeedForwardLayer, "zoo_nemotron_h.drawing:feedforward_layer")


@hookimpl
def zoo_probes():
    yield ModuleProbe("zoo_nemotron_h.block:FeedForwardLayer", "zoo.inspect.tracing.block_probes:LayerProbe")


@hookimpl
def zoo_resolve(config):
    # Not by its model_type alone: layers with experts, E, are not implemented, and another library may have them.
    words = config.get("layers_block_type") or config.get("layer_types") or ()
    experts = "moe" in words or "E" in str(config.get("hybrid_override_pattern") or "")
    return "nemotron-h" if config.get("model_type") == "nemotron_h" and not experts else None


@hookimpl
def zoo_architectures():
    yield Architecture(
        name="nemotron-h",
        base="mamba2",
        summary="Mamba-2 and feed-forwards in turn, with attention without positions in one layer of fourteen",
        recipe=nemotron_h,
        weights=weights(1),
        mlx_weights=weights(2),
        presets=(
            Preset(
                "nano-9b-v2",
                hub="nvidia/NVIDIA-Nemotron-Nano-9B-v2",
                config=NANO,
                licence="NVIDIA Open Model License",
            ),
            Preset("pocket", config=POCKET),
            Preset("tiny", config=TINY),
        ),
        references=("NVIDIA, 2025, arXiv:2504.03624", "NVIDIA, 2025, arXiv:2508.14444"),
        published="2025-04",
    )
