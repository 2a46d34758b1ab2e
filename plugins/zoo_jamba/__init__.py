"""Jamba: Mamba in seven layers of eight, attention without positions in the eighth, experts in every other. Imports no mlx."""

import math
from dataclasses import field

from zoo.architecture import (
    Architecture,
    Block,
    Depthwise,
    Drawing,
    OfBlock,
    Preset,
    Rename,
    Transpose,
    hookimpl,
)
from zoo.frozen import frozen
from zoo.recipe import Attention, Decoder, Embedding, Experts, GatedMLP, Head, Layer, MoE, RMSNorm, Router
from zoo.weights.experts import expert_rules, mlx_expert_rule
from zoo_llama import WEIGHTS as LLAMA_WEIGHTS
from zoo_llama import sized
from zoo_mamba import SelectiveStateSpace


@frozen()
class NormedStateSpace(SelectiveStateSpace):
    """Mamba's selective state space, with an RMSNorm on each of dt's low-rank form, B and C (Lieber et al., 2024).

    Parameters besides Mamba's: `dt_norm` (R,), `B_norm` and `C_norm` (N,), the weights of the norms.
    """

    name = "normed-state-space"
    divided = SelectiveStateSpace.divided
    eps: float = field(default=1e-6, metadata={"least": 0})

    def own_parameters(self, dim):
        return super().own_parameters(dim) + self.dt_rank + 2 * self.state


def jamba(config):
    """Pre-RMSNorm; Mamba or attention without positions by turns, SwiGLU or a mixture of them by turns (AI21, 2024)."""
    config.ignore(
        "attention_dropout", "use_mamba_kernels", "use_mambapy", "use_associative_scan", "num_logits_to_keep"
    )
    config.ignore("output_router_logits", "router_aux_loss_coef")
    dim, count, rank = config.count("hidden_size", 4096), config.layers(), config.get("mamba_dt_rank", "auto")
    norm, activation = (
        RMSNorm(eps=config.number("rms_norm_eps", 1e-6)),
        config.activation("hidden_act", "silu"),
    )
    heads, hidden = config.count("num_attention_heads", 32), config.count("intermediate_size", 14336)
    mixers = {
        "attention": Attention(heads=heads, kv_heads=config.kv_heads(8), head_dim=config.head_width()),
        "mamba": NormedStateSpace(
            hidden=config.count("mamba_expand", 2) * dim,
            dt_rank=math.ceil(dim / 16) if rank == "auto" else config.count("mamba_dt_rank"),
            state=config.count("mamba_d_state", 16),
            kernel=config.count("mamba_d_conv", 4),
            activation=activation,
            bias=config.flag("mamba_proj_bias", False),
            kernel_bias=config.flag("mamba_conv_bias", True),
            eps=norm.eps,
        ),
    }
    dense, experts = GatedMLP(hidden, activation), config.count("num_experts", 16)
    mixture = None
    if experts > 1:
        router = Router(experts, config.count("num_experts_per_tok", 2), normalised=False)
        mixture = MoE(router, Experts(experts, hidden, activation))
    config.ignore("num_experts_per_tok")
    attends, mixes = turns(config, "attn_layer", 8, 4), turns(config, "expert_layer", 2, 1)
    default = ["attention" if index in attends else "mamba" for index in range(count)]
    types = config.choices("layers_block_type", tuple(mixers), count, default)
    return Decoder(
        embedding=Embedding(vocab=config.count("vocab_size", 65536), dim=dim),
        layers=tuple(
            Layer(mixers[kind], mixture if mixture and index in mixes else dense, norm, norm)
            for index, kind in enumerate(types)
        ),
        norm=norm,
        head=Head(tied=config.flag("tie_word_embeddings", False)),
        context=config.count("max_position_embeddings", 262144),
    )


def turns(config, key, period, offset):
    """The layers whose turn it is: one in each `period`, from the `offset`-th on."""
    period, offset = config.count(f"{key}_period", period), config.count(f"{key}_offset", offset, least=0)
    if offset >= period:
        raise config.error(f"{key}_offset", f"is not below {key}_period, {period}")
    return range(offset, config.layers(), period)


LAYER, MIXER, FEEDFORWARD = "[model.]layers.{i}.", "layers.{i}.mixer.", "layers.{i}.feedforward."
EXPERTS = FEEDFORWARD + "experts."
NAMES = {
    "in_proj.*": "input.*",
    "conv1d.bias": "convolution.bias",
    "x_proj.*": "x_proj.*",
    "dt_proj.*": "dt_proj.*",
}
NAMES |= {"D": "D", "out_proj.*": "output.*"}
NAMES |= {"dt_layernorm.weight": "dt_norm", "b_layernorm.weight": "B_norm", "c_layernorm.weight": "C_norm"}


def weights(axis, *experts):
    """The rules of a layout: its experts', and those of both; `axis` is where the convolution's one input channel stands."""
    state_space = (
        *(Rename(f"{LAYER}mamba.{theirs}", MIXER + ours) for theirs, ours in NAMES.items()),
        Depthwise(LAYER + "mamba.conv1d.weight", MIXER + "convolution.weight", axis=axis),
        Transpose(LAYER + "mamba.A_log", MIXER + "A_log"),
    )
    return (
        OfBlock(NormedStateSpace, state_space),
        Rename(LAYER + "pre_ff_layernorm.*", "layers.{i}.feedforward_norm.*"),
        Rename(LAYER + "feed_forward.router.*", FEEDFORWARD + "router.scores.*"),
        *experts,
        *(
            Rename(f"{LAYER}feed_forward.{part}_proj.*", f"{FEEDFORWARD}{part}.*")
            for part in ("gate", "up", "down")
        ),
        Rename("[model.]final_layernorm.*", "norm.*"),
        *LLAMA_WEIGHTS,
    )


HF = weights(1, *expert_rules(LAYER + "feed_forward.", EXPERTS))
MLX = weights(2, mlx_expert_rule(LAYER + "feed_forward.", EXPERTS))

FIRST = sized(layers=32, dim=4096, heads=32, kv_heads=8, hidden=14336, vocab_size=65536) | dict(
    **dict(attn_layer_period=8, attn_layer_offset=4, expert_layer_period=2, expert_layer_offset=1),
    **dict(num_experts=16, num_experts_per_tok=2, max_position_embeddings=262144),
    **dict(mamba_d_state=16, mamba_d_conv=4, mamba_expand=2, mamba_dt_rank=256),
)
TINY = sized(layers=3, dim=64, heads=4, kv_heads=2, hidden=64, vocab_size=256) | dict(
    **dict(
        attn_layer_period=3, attn_layer_offset=1, num_experts=4, mamba_d_state=4, max_position_embeddings=128
    ),
)
POCKET = TINY | dict(hidden_size=128, intermediate_size=192, num_hidden_layers=4, vocab_size=2048)


@hookimpl
def zoo_blocks():
    yield Block(
        NormedStateSpace,
        "zoo_jamba.block:NormedStateSpace",
        "selective state space with norms on dt, B and C",
    )


@hookimpl
def zoo_drawings():
    yield Drawing(NormedStateSpace, "zoo_jamba.drawing:normed_state_space")


@hookimpl
def zoo_architectures():
    yield Architecture(
        name="jamba",
        base="mamba",
        summary="Mamba in seven layers of eight, attention without positions in the eighth, experts in every other layer",
        model_types=("jamba",),
        recipe=jamba,
        weights=HF,
        mlx_weights=MLX,
        presets=(
            Preset("v0.1", hub="ai21labs/Jamba-v0.1", config=FIRST, licence="Apache-2.0"),
            Preset("pocket", config=POCKET),
            Preset("tiny", config=TINY),
        ),
        references=("Lieber et al., 2024, arXiv:2403.19887",),
        published="2024-03",
    )
