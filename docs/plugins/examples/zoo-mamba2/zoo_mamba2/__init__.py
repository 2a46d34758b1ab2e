"""Mamba-2, told as a difference from Mamba: a state a head, updated in chunks by matrix products. Imports no mlx."""

from dataclasses import dataclass

from zoo.architecture import Architecture, Block, Depthwise, Drawing, Preset, Rename, hookimpl
from zoo.errors import RecipeError
from zoo.recipe import Spec
from zoo_mamba import mamba, weights


@dataclass(frozen=True)
class StateSpace(Spec):
    """A convolution, then a state (head_dim, state) a head; the heads of a group write and read the same."""

    kind, name = "mixer", "mamba2"
    recurrent = True  # it is told which columns hold a token, and carries a state
    heads: int
    head_dim: int
    state: int
    groups: int
    kernel: int = 4
    chunk: int = 256
    activation: str = "silu"
    bias: bool = False
    output_bias: bool = False
    kernel_bias: bool = True
    eps: float | None = 1e-5  # of the gated norm; None: no norm

    def __post_init__(self):
        super().__post_init__()
        if self.heads % self.groups:
            raise RecipeError(f"groups: {self.groups} does not divide heads, {self.heads}")

    @property
    def inner(self):  # the width of all heads
        return self.heads * self.head_dim

    @property
    def channels(self):  # what is convolved: the heads' values, and what each group writes and reads
        return self.inner + 2 * self.groups * self.state

    def own_parameters(self, dim):
        outputs = self.inner + self.channels + self.heads
        projections = (dim + self.bias) * outputs + (self.inner + self.output_bias) * dim
        convolution = self.channels * (self.kernel + self.kernel_bias)
        return projections + convolution + 3 * self.heads + self.inner * (self.eps is not None)

    def state_size(self, dim):
        return self.channels * (self.kernel - 1) + self.inner * self.state


def mamba2(config):
    """Mamba with another mixer (Dao and Gu, 2024, section 7)."""
    refuse_step_limits(config)
    base = mamba(config.with_defaults(tie_word_embeddings=False, state_size=128))
    same = ("state", "kernel", "activation", "bias", "kernel_bias")
    return base.change_layers(
        mixer=StateSpace(
            heads=config.count("num_heads"),
            head_dim=config.count("head_dim"),
            groups=config.count("n_groups", 8),
            chunk=config.count("chunk_size", 256),
            output_bias=config.flag("use_bias", False),
            eps=config.number("layer_norm_epsilon", 1e-5),
            **{name: getattr(base.layers[0].mixer, name) for name in same},
        )
    )


def refuse_step_limits(config):
    """ConfigError for limits of the step size other than none, which JSON spells in two ways."""
    if config.get("time_step_limit") not in (None, [0.0, float("inf")], [0.0, {"__float__": "Infinity"}]):
        raise config.error("time_step_limit", "is not implemented")


NAMES = {"in_proj.*": "input.*", "conv1d.bias": "convolution.bias", "dt_bias": "step", "A_log": "decay"}
NAMES |= {"D": "skip", "norm.weight": "gain", "out_proj.*": "output.*"}


def mixer_weights(source="backbone.layers.{i}.mixer.", target="layers.{i}.mixer.", axis=1):
    """The rules of a mixer, between two prefixes; `axis` is where the convolution's one input channel stands."""
    convolution = Depthwise(source + "conv1d.weight", target + "convolution.weight", axis=axis)
    return (convolution, *(Rename(source + theirs, target + ours) for theirs, ours in NAMES.items()))


TINY = dict(vocab_size=64, hidden_size=16, num_hidden_layers=2, num_heads=4, head_dim=8, state_size=6)


@hookimpl
def zoo_blocks():
    yield Block(StateSpace, "zoo_mamba2.block:StateSpace", "states of heads, updated in chunks")


@hookimpl
def zoo_drawings():
    """The mixer's block diagram."""
    yield Drawing(StateSpace, "zoo_mamba2.drawing:state_space")


@hookimpl
def zoo_architectures():
    """Mamba-2, in both published layouts; some of its rules are Mamba's, too."""
    hf, mlx = (tuple(dict.fromkeys((*mixer_weights(axis=axis), *weights(axis)))) for axis in (1, 2))
    yield Architecture(
        name="mamba2",
        base="mamba",
        summary="Mamba with one decay a head, so that chunks of tokens are products of matrices",
        model_types=("mamba2",),
        recipe=mamba2,
        weights=hf,
        mlx_weights=mlx,
        presets=(Preset("tiny", "for tests", config=TINY | dict(n_groups=2, chunk_size=8)),),
        references=("Dao and Gu, 2024, arXiv:2405.21060",),
        published="2024-05",
        api=1,
    )
