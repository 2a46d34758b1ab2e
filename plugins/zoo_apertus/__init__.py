"""Apertus, as a difference from LLaMA, and the activation that only it has. Imports no mlx."""

from dataclasses import field

from zoo.architecture import Architecture, Block, Drawing, ModuleProbe, Preset, Rename, hookimpl
from zoo.frozen import frozen
from zoo.recipe import MLP, RMSNorm
from zoo_llama import POCKET, TINY, llama, published, sized
from zoo_llama import WEIGHTS as LLAMA_WEIGHTS


@frozen()
class LearnedMLP(MLP):
    """down(xIELU(up(x))), an activation whose curves on both sides of zero are learned (Huang and Schlag, 2024).

    Parameters: `alpha_p` and `alpha_n` (1,), and the constants `beta` and `eps`, which checkpoints hold with them.
    """

    kind, name = "feedforward", "learned-mlp"
    divided = MLP.divided
    activation: str = field(default="xIELU", metadata={"choices": ("xIELU",)})
    bias: bool = False

    @property
    def title(self):
        """The activation's name."""
        return "feed-forward with xIELU"

    def own_parameters(self, dim):
        return super().own_parameters(dim) + 4


def apertus(config):
    """LLaMA with a norm on each query and key head, and a feed-forward without a gate (Swiss AI, 2025)."""
    config.choice("hidden_act", ("xielu",), "xielu")
    config.refuse("post_norm")
    config = config.with_defaults(
        rms_norm_eps=1e-5, max_position_embeddings=65536, rope_theta=12e6, rope_parameters=SCALED
    )
    norm = RMSNorm(config.number("rms_norm_eps")) if config.flag("qk_norm", True) else None
    feedforward = LearnedMLP(config.count("intermediate_size"), bias=config.flag("mlp_bias", False))
    recipe = llama(config.replaced(hidden_act="silu"))  # of the feed-forward that is put aside
    config.note("hidden_act", "xielu")
    return recipe.change_layers(feedforward=feedforward, mixer=dict(query_norm=norm, key_norm=norm))


@frozen()
class Alone(Rename):
    """A single number, which mlx-lm's folders hold without an axis."""

    def loaded(self, tensor):
        return tensor.reshape(1) if tensor.shape == () else tensor


LAYER = "[model.]layers.{i}."
WEIGHTS = (
    Rename(LAYER + "attention_layernorm.*", "layers.{i}.mixer_norm.*"),
    Rename(LAYER + "feedforward_layernorm.*", "layers.{i}.feedforward_norm.*"),
    *(
        Alone(LAYER + "mlp.act_fn." + name, "layers.{i}.feedforward." + name)
        for name in ("alpha_p", "alpha_n")
    ),
    *(Rename(LAYER + "mlp.act_fn." + name, "layers.{i}.feedforward." + name) for name in ("beta", "eps")),
    *LLAMA_WEIGHTS,
)
SCALED = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)
SCALED |= dict(original_max_position_embeddings=8192)
PUBLISHED = dict(vocab_size=131072, max_position_embeddings=65536, rms_norm_eps=1e-5, rope_theta=12e6)
SIZES = {"8b": sized(32, 4096, 32, 8, 21504), "70b": sized(80, 8192, 64, 8, 43008)}


@hookimpl
def zoo_architectures():
    """Apertus."""
    yield Architecture(
        name="apertus",
        base="llama",
        summary="LLaMA with a norm on each query and key head, and a learned activation without a gate",
        model_types=("apertus",),
        recipe=apertus,
        weights=WEIGHTS,
        presets=(
            *(
                published(
                    size,
                    f"swiss-ai/Apertus-{size.upper()}-Instruct-2509",
                    "Apache-2.0",
                    rope_scaling=SCALED,
                    **numbers | PUBLISHED,
                )
                for size, numbers in SIZES.items()
            ),
            Preset("pocket", config=POCKET | dict(intermediate_size=512)),
            Preset("tiny", config=TINY),
        ),
        references=("Swiss AI, 2025, arXiv:2509.14233", "Huang and Schlag, 2024, arXiv:2411.13010"),
        published="2025-09",
    )


@hookimpl
def zoo_blocks():
    """The feed-forward, which is all that the zoo lacks."""
    yield Block(LearnedMLP, "zoo_apertus.block:LearnedMLP", "feed-forward with a learned activation")


@hookimpl
def zoo_drawings():
    yield Drawing(LearnedMLP, "zoo.describe.diagram.parts:mlp")


@hookimpl
def zoo_probes():
    yield ModuleProbe("zoo_apertus.block:LearnedMLP", "zoo.inspect.tracing.block_probes:FeedForwardProbe")
