"""Mamba-2, told as a difference from Mamba: a state a head, updated in chunks by matrix products. Imports no mlx."""

from dataclasses import field
from typing import ClassVar

from zoo.architecture import Architecture, Block, Depthwise, Drawing, ModuleProbe, Preset, Rename, hookimpl
from zoo.errors import RecipeError
from zoo.frozen import frozen
from zoo.recipe import ACTIVATIONS, Matrix, Spec
from zoo_mamba import mamba, weights

CHUNK = 64  # tokens that are read by one product of matrices: of the computation, not of the model


@frozen()
class StateSpace(Spec):
    """A convolution over the last `kernel` tokens, then a state (`head_dim`, `state`) for each of `heads` heads.

    dt, B and C say how much of a head's state stays, what enters it and what is read from it; the heads of a group share B
    and C (Dao and Gu, 2024, section 7). `eps` is of the norm before the output (None: no norm). Parameters besides the
    projections: `dt_bias`, `A_log` and `D`, (H,) each, and `gain`, the norm's.
    dt is at least `step_min` and at most `step_max` (None: without end).
    """

    kind, name = "mixer", "mamba2"
    recurrent: ClassVar[bool] = True
    chunks: ClassVar[tuple[int, ...]] = (CHUNK,)
    heads: int
    head_dim: int
    state: int
    groups: int
    kernel: int = 4
    activation: str = field(default="silu", metadata={"choices": ACTIVATIONS})
    bias: bool = False
    output_bias: bool = False
    kernel_bias: bool = True
    eps: float | None = 1e-5
    step_min: float = field(default=0.0, metadata={"least": 0})
    step_max: float | None = field(default=None, metadata={"least": 0})

    def __post_init__(self):
        super().__post_init__()
        if self.step_max is not None and self.step_max < self.step_min:
            raise RecipeError(f"step_max: {self.step_max} is less than step_min, {self.step_min}")
        if self.heads % self.groups:
            raise RecipeError(f"groups: {self.groups} does not divide heads, {self.heads}")

    @property
    def inner(self):
        """The width of all heads together."""
        return self.heads * self.head_dim

    @property
    def channels(self):
        """How many channels are convolved: the heads' values, and each group's B and C."""
        return self.inner + 2 * self.groups * self.state

    def own_parameters(self, dim):
        convolution = self.channels * (self.kernel + self.kernel_bias)
        return (
            super().own_parameters(dim) + convolution + 3 * self.heads + self.inner * (self.eps is not None)
        )

    def matrices(self, dim):
        return (
            Matrix("input", dim, self.inner + self.channels + self.heads, bias=self.bias),
            Matrix("output", self.inner, dim, bias=self.output_bias),
        )

    def state_size(self, dim):
        return self.channels * (self.kernel - 1) + self.inner * self.state


def mamba2(config):
    """Mamba with another mixer (Dao and Gu, 2024, section 7)."""
    config.ignore("chunk_size")  # it changes no logit
    base = mamba(config.with_defaults(tie_word_embeddings=False, state_size=128))
    same = ("state", "kernel", "activation", "bias", "kernel_bias")
    return base.change_layers(
        mixer=StateSpace(
            heads=config.count("num_heads"),
            head_dim=config.count("head_dim"),
            groups=config.count("n_groups", 8),
            output_bias=config.flag("use_bias", False),
            eps=config.number("layer_norm_epsilon", 1e-5),
            **step_limits(config),
            **{name: getattr(base.layers[0].mixer, name) for name in same},
        )
    )


def step_limits(config):
    """The bounds of dt by their fields; none where the config has no `time_step_limit`. JSON spells infinity in two ways."""
    if config.get("time_step_limit") is None:
        return {}
    limits = config["time_step_limit"]
    numbers = isinstance(limits, list) and [
        float("inf") if n == {"__float__": "Infinity"} else n for n in limits
    ]
    if not numbers or len(numbers) != 2 or not all(type(n) in (int, float) for n in numbers):
        raise config.error("time_step_limit", "must be a list of two numbers")
    least, most = map(float, numbers)
    if not 0 <= least <= most or least == float("inf"):
        raise config.error("time_step_limit", "must be two numbers from 0 on, the smaller one first")
    return {"step_min": least, "step_max": None if most == float("inf") else most}


def state_space_of(config, inner, kind=StateSpace, **fields):
    """The Mamba-2 mixer of a hybrid model. It is `inner` wide; its sizes are the config's keys `mamba_…`."""
    config.ignore("mamba_chunk_size")  # it changes no logit
    heads = config.count("mamba_n_heads", 128)
    head_dim = inner // heads
    if config.get("mamba_d_head", "auto") not in ("auto", head_dim) or heads * head_dim != inner:
        raise config.error("mamba_n_heads", f"times mamba_d_head must be the width, {inner}")
    return kind(
        heads=heads,
        head_dim=head_dim,
        state=config.count("mamba_d_state", 256),
        groups=config.count("mamba_n_groups", 1),
        kernel=config.count("mamba_d_conv", 4),
        activation=config.activation("hidden_act", "silu"),
        bias=config.flag("mamba_proj_bias", False),
        kernel_bias=config.flag("mamba_conv_bias", True),
        **step_limits(config),
        **fields,
    )


NAMES = {
    "in_proj.*": "input.*",
    "conv1d.bias": "convolution.bias",
    "norm.weight": "gain",
    "out_proj.*": "output.*",
}
NAMES |= {name: name for name in ("dt_bias", "A_log", "D")}


def mixer_weights(source="backbone.layers.{i}.mixer.", target="layers.{i}.mixer.", axis=1, kind=Depthwise):
    """The rules of a mixer, between two prefixes; `axis` is where the convolution's one input channel stands."""
    convolution = kind(source + "conv1d.weight", target + "convolution.weight", axis=axis)
    return (convolution, *(Rename(source + theirs, target + ours) for theirs, ours in NAMES.items()))


# Of `mixer_weights` and Mamba's rules, which share some, the first of two that fit takes a tensor.
HF, MLX = (tuple(dict.fromkeys((*mixer_weights(axis=axis), *weights(axis)))) for axis in (1, 2))

CODESTRAL = dict(vocab_size=32768, hidden_size=4096, num_hidden_layers=64, num_heads=128, head_dim=64)
CODESTRAL |= dict(state_size=128, n_groups=8, tie_word_embeddings=False)
TINY = dict(vocab_size=256, hidden_size=32, num_hidden_layers=2, num_heads=4, head_dim=16, state_size=6)
TINY |= dict(n_groups=2)
POCKET = TINY | dict(vocab_size=2048, hidden_size=160, num_hidden_layers=4, num_heads=20, state_size=16)


@hookimpl
def zoo_blocks():
    yield Block(StateSpace, "zoo_mamba2.block:StateSpace", "state space with one decay a head (SSD)")


@hookimpl
def zoo_drawings():
    yield Drawing(StateSpace, "zoo_mamba2.drawing:state_space")


@hookimpl
def zoo_probes():
    yield ModuleProbe("zoo_mamba2.block:StateSpace", "zoo_mamba2.probe:StateSpaceProbe")


@hookimpl
def zoo_architectures():
    yield Architecture(
        name="mamba2",
        base="mamba",
        summary="Mamba with one decay a head, so that chunks of tokens are products of matrices",
        model_types=("mamba2",),
        recipe=mamba2,
        weights=HF,
        mlx_weights=MLX,
        presets=(
            Preset("7b", hub="mistralai/Mamba-Codestral-7B-v0.1", config=CODESTRAL, licence="Apache-2.0"),
            Preset("pocket", config=POCKET),
            Preset("tiny", config=TINY),
        ),
        references=("Dao and Gu, 2024, arXiv:2405.21060",),
        published="2024-05",
    )
