"""Mamba: a selective state space in the place of attention, and no feed-forward. Imports no mlx."""

import math
from dataclasses import field
from typing import ClassVar

from zoo.architecture import (
    GGUF,
    Architecture,
    Block,
    Depthwise,
    Drawing,
    ModuleProbe,
    OutputHead,
    Preset,
    Rename,
    Transpose,
    hookimpl,
    pocket,
)
from zoo.frozen import frozen
from zoo.gguf import DECODER
from zoo.recipe import (
    ACTIVATIONS,
    Cut,
    Decoder,
    Division,
    Embedding,
    Head,
    Matrix,
    RMSNorm,
    Spec,
    inputs,
    outputs,
    repeat,
)


@frozen()
class NegativeExp(Rename):
    """The logarithm of −A, (N, E), where a file holds A itself, (E, N)."""

    def loaded(self, tensor):
        """The logarithm; a number that is not below zero has none: NaN, which is refused later."""
        import mlx.core as mx

        return mx.log(-tensor).T

    def saved(self, parameter):
        """A itself."""
        import mlx.core as mx

        return -mx.exp(parameter.T)


CHUNK = 64  # tokens read one after the other: each such step works on all chunks
SEGMENT = 512  # tokens scanned at once: bounds the memory of what chunks keep, two states a token


@frozen()
class SelectiveStateSpace(Spec):
    """A convolution over the last `kernel` tokens, then a state of `state` numbers for each of `hidden` channels.

    dt, B and C, which say how much of the state stays, what enters it and what is read from it, are projections of the
    token (Gu and Dao, 2023, section 3); `dt_rank` is the rank of dt's. `bias` is of the input and output projections.
    Parameters besides those: `x_proj` (dt, B and C), `dt_proj`, `A_log` (N, E), `D` (E,).
    """

    kind, name = "mixer", "selective-state-space"
    recurrent: ClassVar[bool] = True
    chunks: ClassVar[tuple[int, ...]] = (CHUNK, SEGMENT)
    hidden: int
    dt_rank: int
    state: int = 16
    kernel: int = 4
    activation: str = field(default="silu", metadata={"choices": ACTIVATIONS})
    bias: bool = False
    kernel_bias: bool = True

    def own_parameters(self, dim):
        convolution = self.hidden * (self.kernel + self.kernel_bias)
        return super().own_parameters(dim) + convolution + self.hidden * (self.state + 1)

    def matrices(self, dim):
        return (
            Matrix("input", dim, 2 * self.hidden, bias=self.bias),
            Matrix("x_proj", self.hidden, self.dt_rank + 2 * self.state),
            Matrix("dt_proj", self.dt_rank, self.hidden, bias=True),
            Matrix("output", self.hidden, dim, bias=self.bias),
        )

    def divided(self, dim, share):
        """Each rank has a range of the channels. dt, B and C are projections of all channels, and so sums over the ranks."""
        first, last = channels = share.inputs("hidden", self.hidden)
        gate = first + self.hidden, last + self.hidden
        vectors = ("convolution.weight", "convolution.bias", "A_log", "D")
        return Division(
            self.change(hidden=last - first),
            outputs("input", channels, gate)
            | {name: Cut(-1, (channels,)) for name in vectors}
            | inputs("x_proj", channels)
            | outputs("dt_proj", channels)
            | inputs("output", channels),
            once=("output.bias",),
            sums=("x_proj", ""),
        )

    def state_size(self, dim):
        return self.hidden * (self.kernel - 1 + self.state)


@frozen()
class MixerLayer(Spec):
    """x + mixer(norm(x)), and nothing else. `float32_residual`: the sum is kept in float32 between layers."""

    kind, name = "layer", "mixer-only"
    mixer: Spec
    mixer_norm: Spec
    float32_residual: bool = False

    @property
    def widens(self):
        """A sum in float32 is wider than what enters the first layer."""
        return self.float32_residual

    @property
    def norm_placement(self):
        """Before the mixer, the only part."""
        return "before each part"


def mamba(config):
    """Pre-RMSNorm around one selective state space a layer (Gu and Dao, 2023)."""
    dim, rank = config.count("hidden_size"), config.get("time_step_rank", "auto")
    config.refuse("use_bcdt_rms")  # norms of dt, B and C, which Falcon Mamba adds
    config.refuse("rms_norm", False)
    config.refuse("ssm_cfg")
    config.ignore(*UNUSED)
    norm = RMSNorm(eps=config.number("layer_norm_epsilon", 1e-5))
    mixer = SelectiveStateSpace(
        hidden=config.count("intermediate_size", config.count("expand", 2) * dim),
        dt_rank=math.ceil(dim / 16) if rank == "auto" else config.count("time_step_rank"),
        state=config.count("state_size", 16),
        kernel=config.count("conv_kernel", 4),
        activation=config.activation("hidden_act", "silu"),
        bias=config.flag("use_bias", False),
        kernel_bias=config.flag("use_conv_bias", True),
    )
    layer = MixerLayer(mixer=mixer, mixer_norm=norm, float32_residual=config.flag("residual_in_fp32", True))
    return Decoder(
        embedding=Embedding(vocab=config.count("vocab_size"), dim=dim),
        layers=repeat(layer, config.layers()),
        norm=norm,
        head=Head(tied=config.flag("tie_word_embeddings", True)),
    )


# How training starts and which kernel runs; and the first release's names of what the other keys say too.
UNUSED = (
    *("time_step_scale", "time_step_min", "time_step_max", "time_step_init_scheme", "time_step_floor"),
    *("rescale_prenorm_residual", "use_mambapy", "use_associative_scan", "fused_add_norm"),
    *("d_model", "d_inner", "n_layer", "pad_vocab_size_multiple"),
)


def weights(convolution_axis):
    """The rules of both layouts: they differ in where the convolution's one input channel stands."""
    mixer, target = "backbone.layers.{i}.mixer.", "layers.{i}.mixer."
    return (
        Rename("backbone.embeddings.weight", "embedding.tokens.weight"),
        Rename("backbone.embedding.weight", "embedding.tokens.weight"),
        Rename("backbone.layers.{i}.norm.weight", "layers.{i}.mixer_norm.weight"),
        Rename(mixer + "in_proj.*", target + "input.*"),
        Depthwise(mixer + "conv1d.weight", target + "convolution.weight", axis=convolution_axis),
        Rename(mixer + "conv1d.bias", target + "convolution.bias"),
        Rename(mixer + "x_proj.*", target + "x_proj.*"),
        Rename(mixer + "dt_proj.*", target + "dt_proj.*"),
        Transpose(mixer + "A_log", target + "A_log"),
        Rename(mixer + "D", target + "D"),
        Rename(mixer + "out_proj.*", target + "output.*"),
        Rename("backbone.norm_f.weight", "norm.weight"),
        OutputHead("lm_head.*", "head.output.*"),
    )


MIXER = "layers.{i}.mixer."
MAMBA_GGUF = GGUF(
    "mamba",
    (
        Rename("blk.{i}.ssm_in.*", MIXER + "input.*"),
        Transpose("blk.{i}.ssm_conv1d.weight", MIXER + "convolution.weight"),
        Rename("blk.{i}.ssm_conv1d.bias", MIXER + "convolution.bias"),
        Rename("blk.{i}.ssm_x.*", MIXER + "x_proj.*"),
        Rename("blk.{i}.ssm_dt.*", MIXER + "dt_proj.*"),
        NegativeExp("blk.{i}.ssm_a", MIXER + "A_log"),
        Rename("blk.{i}.ssm_d", MIXER + "D"),
        Rename("blk.{i}.ssm_out.*", MIXER + "output.*"),
        *DECODER,
    ),
    keys={
        "ssm.conv_kernel": "conv_kernel",
        "ssm.inner_size": "intermediate_size",
        "ssm.state_size": "state_size",
        "ssm.time_step_rank": "time_step_rank",
        "ssm.dt_b_c_rms": "use_bcdt_rms",
        "attention.layer_norm_rms_epsilon": "layer_norm_epsilon",
        # Written since readers ask for them: a state has no end, and there is neither attention nor feed-forward.
        **dict.fromkeys(("context_length", "feed_forward_length", "attention.head_count")),
    },
)

POCKET = dict(vocab_size=2048, hidden_size=160, num_hidden_layers=4, state_size=16)
TINY = POCKET | dict(vocab_size=256, hidden_size=64, num_hidden_layers=2)
PUBLISHED = dict(vocab_size=50280, state_size=16, conv_kernel=4, expand=2, layer_norm_epsilon=1e-5)


def published(size, dim, layers):
    """A preset with the numbers of one of the authors' checkpoints."""
    numbers = PUBLISHED | dict(hidden_size=dim, num_hidden_layers=layers)
    return Preset(size, hub=f"state-spaces/mamba-{size}-hf", config=numbers)


@hookimpl
def zoo_blocks():
    yield Block(
        SelectiveStateSpace,
        "zoo_mamba.block:SelectiveStateSpace",
        "selective state space (S6)",
    )
    yield Block(MixerLayer, "zoo_mamba.block:MixerLayer", "pre-norm residual around a mixer alone")


@hookimpl
def zoo_drawings():
    yield Drawing(SelectiveStateSpace, "zoo_mamba.drawing:state_space")
    yield Drawing(MixerLayer, "zoo_mamba.drawing:mixer_layer")


@hookimpl
def zoo_architectures():
    yield Architecture(
        name="mamba",
        summary="selective state space, constant memory, no attention and no feed-forward",
        model_types=("mamba",),
        recipe=mamba,
        weights=weights(1),
        mlx_weights=weights(2),
        gguf=MAMBA_GGUF,
        presets=(
            pocket(__file__, "mamba", **POCKET),
            published("2.8b", 2560, 64),
            published("130m", 768, 24),
            Preset("tiny", config=TINY),
        ),
        references=("Gu and Dao, 2023, arXiv:2312.00752",),
        published="2023-12",
    )


@hookimpl
def zoo_probes():
    yield ModuleProbe("zoo_mamba.block:SelectiveStateSpace", "zoo_mamba.probe:SelectiveStateSpaceProbe")
