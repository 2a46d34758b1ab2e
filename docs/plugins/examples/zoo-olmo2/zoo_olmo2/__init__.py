"""OLMo 2: LLaMA with norms on what its blocks give, not on what they read. Imports no mlx."""

from dataclasses import dataclass

from zoo.architecture import Architecture, Block, Drawing, Preset, Rename, hookimpl
from zoo.recipe import JointRMSNorm, Spec
from zoo_llama import WEIGHTS as LLAMA_WEIGHTS
from zoo_llama import llama


@dataclass(frozen=True)
class OutputNormLayer(Spec):
    """x + mixer_norm(mixer(x)), then the same with the feed-forward (OLMo Team, 2024, section 3.2)."""

    kind, name = "layer", "olmo2-output-norm"
    mixer: Spec
    feedforward: Spec
    mixer_norm: Spec
    feedforward_norm: Spec


def olmo2(config):
    """LLaMA with its norms moved, and a norm on all queries and one on all keys (OLMo Team, 2024)."""
    config = config.with_defaults(rms_norm_eps=1e-5, max_position_embeddings=2048)
    recipe, eps = llama(config), config.number("rms_norm_eps")

    def moved(layer):
        mixer = layer.mixer.change(
            query_norm=JointRMSNorm(heads=layer.mixer.heads, eps=eps),
            key_norm=JointRMSNorm(heads=layer.mixer.kv_heads, eps=eps),
        )
        return OutputNormLayer(mixer, layer.feedforward, layer.mixer_norm, layer.feedforward_norm)

    return recipe.change(layers=tuple(moved(layer) for layer in recipe.layers))


# The norms have other places; all else is named as in LLaMA, where the first of these names means another norm.
WEIGHTS = (
    Rename("[model.]layers.{i}.post_attention_layernorm.*", "layers.{i}.mixer_norm.*"),
    Rename("[model.]layers.{i}.post_feedforward_layernorm.*", "layers.{i}.feedforward_norm.*"),
    *LLAMA_WEIGHTS,
)

TINY = dict(
    vocab_size=128,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
)

SEVEN_BILLION = dict(
    vocab_size=100352,
    hidden_size=4096,
    intermediate_size=11008,
    num_hidden_layers=32,
    num_attention_heads=32,
    max_position_embeddings=4096,
    rms_norm_eps=1e-6,
    rope_theta=500000.0,
)


@hookimpl
def zoo_blocks():
    """A layer, which is all that the zoo lacks."""
    yield Block(
        OutputNormLayer, "zoo_olmo2.block:OutputNormLayer", "norms on what mixer and feed-forward give"
    )


@hookimpl
def zoo_drawings():
    """How the layer looks in block diagrams."""
    yield Drawing(OutputNormLayer, "zoo_olmo2.drawing:output_norm_layer")


@hookimpl
def zoo_architectures():
    """OLMo 2."""
    yield Architecture(
        name="olmo2",
        base="llama",
        summary="LLaMA with norms on what its blocks give, and on all queries and all keys",
        model_types=("olmo2",),
        recipe=olmo2,
        weights=WEIGHTS,
        presets=(
            Preset("7b", hub="allenai/OLMo-2-1124-7B", config=SEVEN_BILLION),
            Preset("tiny", config=TINY),
        ),
        references=("OLMo Team, 2024, arXiv:2501.00656",),
        published="2025-01",
        api=1,
    )
