"""Nemotron and Minitron, as a difference from LLaMA. Imports no mlx."""

from zoo.architecture import Architecture, Block, Drawing, ModuleProbe, Preset, hookimpl
from zoo.frozen import frozen
from zoo.recipe import MLP, LayerNorm
from zoo_llama import POCKET, TINY, WEIGHTS, llama


@frozen()
class OffsetLayerNorm(LayerNorm):
    """LayerNorm whose weight w is the distance of a factor from one: (x − mean) / √(variance + eps) · (1 + w) + bias."""

    kind, name = "norm", "offset-layernorm"

    @property
    def title(self):
        """LayerNorm, with what is learned."""
        return "LayerNorm (1 + w)"


def nemotron(config):
    """LLaMA with LayerNorm, squared ReLU without a gate, and half of each head rotated (Parmar et al., 2024)."""
    config.ignore("hidden_dropout", "attention_dropout")
    config = config.with_defaults(hidden_act="relu2", partial_rotary_factor=0.5, max_position_embeddings=4096)
    norm, bias = OffsetLayerNorm(eps=config.number("norm_eps", 1e-5)), config.flag("mlp_bias", False)
    return (
        llama(config)
        .change_layers(
            lambda index, layer: dict(
                feedforward=MLP(layer.feedforward.hidden, layer.feedforward.activation, bias),
                mixer_norm=norm,
                feedforward_norm=norm,
            )
        )
        .change(norm=norm)
    )


@hookimpl
def zoo_architectures():
    """Nemotron."""
    yield Architecture(
        name="nemotron",
        base="llama",
        summary="LLaMA with LayerNorm, squared ReLU without a gate, and rotary positions on half of each head",
        model_types=("nemotron",),
        recipe=nemotron,
        weights=WEIGHTS,
        presets=(
            Preset("pocket", config=POCKET | dict(intermediate_size=512)),
            Preset("tiny", config=TINY),
        ),
        references=("Parmar et al., 2024, arXiv:2402.16819", "Muralidharan et al., 2024, arXiv:2407.14679"),
        published="2024-02",
    )


@hookimpl
def zoo_blocks():
    """The norm, which is all that the zoo lacks."""
    yield Block(OffsetLayerNorm, "zoo_nemotron.block:OffsetLayerNorm", "LayerNorm times (1 + weight)")


@hookimpl
def zoo_drawings():
    yield Drawing(OffsetLayerNorm, "zoo_nemotron.drawing:offset_norm")


@hookimpl
def zoo_probes():
    yield ModuleProbe("zoo_nemotron.block:OffsetLayerNorm", "zoo.inspect.tracing.block_probes:NormProbe")
