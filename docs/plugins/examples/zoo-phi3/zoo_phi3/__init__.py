"""Phi-3 and Phi-4: LLaMA with fused projections, and long contexts by LongRoPE. Imports no mlx."""

import math
from dataclasses import dataclass

from zoo.architecture import Architecture, Block, Preset, Split, hookimpl
from zoo.recipe import RoPE, Spec
from zoo_llama import TINY, llama
from zoo_llama import WEIGHTS as LLAMA_WEIGHTS


@dataclass(frozen=True)
class LongScaling(Spec):
    """Each wavelength times a factor of its own: of `short` in texts up to `context` tokens, else of `long`.

    Ding et al., 2024. Queries and keys are multiplied by `magnitude`.
    """

    kind, name = "rope-scaling", "longrope"
    short: tuple[float, ...]
    long: tuple[float, ...]
    context: int
    magnitude: float = 1.0


def longrope(scaling, config, positions):
    """The scaling that the config's `rope_scaling` describes, for a model of `positions` positions."""
    context = config.count("original_max_position_embeddings", least=2)
    growth = scaling.number("factor", positions / context, least=1e-3, most=1e6)
    magnitude = math.sqrt(1 + math.log(growth) / math.log(context)) if growth > 1 else 1.0
    return LongScaling(
        short=scaling.numbers("short_factor", least=1e-3, most=1e6),
        long=scaling.numbers("long_factor", least=1e-3, most=1e6),
        context=context,
        magnitude=scaling.number("attention_factor", magnitude, least=1e-3, most=1e3),
    )


def phi3(config):
    """LLaMA, all of whose layers may see only a window (Abdin et al., 2024)."""
    config.ignore("resid_pdrop", "embd_pdrop")  # of training
    config = config.with_defaults(
        rms_norm_eps=1e-5, max_position_embeddings=4096, original_max_position_embeddings=4096
    )
    # The first releases called it otherwise, and had no other kind.
    rope = RoPE.of(
        config, config.count("head_dim", None), kinds=dict.fromkeys(("longrope", "su", "yarn"), longrope)
    )
    return llama(config, rope).change_layers(mixer=dict(window=config.count("sliding_window", None)))


LAYER, MIXER, FEEDFORWARD = "[model.]layers.{i}.", "layers.{i}.mixer.", "layers.{i}.feedforward."
WEIGHTS = (
    # All queries, all keys, all values: unequal parts where keys and values have fewer heads.
    Split(
        LAYER + "self_attn.qkv_proj.*",
        tuple(MIXER + part + ".*" for part in ("query", "key", "value")),
        sizes=("heads", "kv_heads", "kv_heads"),
    ),
    Split(LAYER + "mlp.gate_up_proj.*", (FEEDFORWARD + "gate.*", FEEDFORWARD + "up.*")),
    *LLAMA_WEIGHTS,
)

# A text that outgrows the short factors changes all of its tokens: those of the suite are not so long.
LONG = TINY | dict(
    max_position_embeddings=2048,
    original_max_position_embeddings=512,
    rope_scaling=dict(type="longrope", short_factor=[1.0] * 4 + [1.5] * 4, long_factor=[1.0] * 2 + [8.0] * 6),
)

MINI = dict(
    vocab_size=32064,
    hidden_size=3072,
    intermediate_size=8192,
    num_hidden_layers=32,
    num_attention_heads=32,
    max_position_embeddings=4096,
    sliding_window=2047,
)
PHI4 = dict(
    vocab_size=100352,
    hidden_size=5120,
    intermediate_size=17920,
    num_hidden_layers=40,
    num_attention_heads=40,
    num_key_value_heads=10,
    max_position_embeddings=16384,
    rope_theta=250000.0,
)


@hookimpl
def zoo_blocks():
    """A kind of scaling, which is all that LLaMA lacks."""
    yield Block(
        LongScaling, "zoo_phi3.block:LongScaling", "a factor for each wavelength, by the text's length"
    )


@hookimpl
def zoo_architectures():
    """Phi-3, and Phi-4, which is one with other numbers."""
    yield Architecture(
        name="phi3",
        base="llama",
        summary="LLaMA with fused projections, and long contexts by LongRoPE",
        model_types=("phi3",),
        recipe=phi3,
        weights=WEIGHTS,
        presets=(
            Preset("mini-4k", hub="microsoft/Phi-3-mini-4k-instruct", config=MINI),
            Preset("phi-4", hub="microsoft/phi-4", config=PHI4),
            Preset("tiny", config=TINY | dict(sliding_window=6)),
            Preset("long", config=LONG),
        ),
        references=("Abdin et al., 2024, arXiv:2404.14219", "Ding et al., 2024, arXiv:2402.13753"),
        published="2024-04",
        api=1,
    )
