"""Falcon-H1, told as a difference from LLaMA: a state space beside every attention. Imports no mlx."""

from dataclasses import dataclass

import zoo_mamba2

import zoo_llama
from zoo.architecture import Architecture, Block, Drawing, Preset, Rename, hookimpl
from zoo.recipe import GatedMLP, Layer, Spec, repeat


@dataclass(frozen=True)
class ScaledStateSpace(zoo_mamba2.StateSpace):
    """Mamba-2's mixer; what it projects is multiplied by `scales`: of gate, values, write, read and step.

    The gate comes after the norm when `norm_first`, and alone when there is no norm.
    """

    name = "falcon-h1"
    scales: tuple[float, ...] = (1.0,) * 5
    norm_first: bool = False


@dataclass(frozen=True)
class ScaledMLP(GatedMLP):
    """down(activation(gate(x) · scales₀) · up(x)) · scales₁."""

    name = "falcon-h1"
    divided = GatedMLP.divided
    scales: tuple[float, ...] = (1.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class ParallelLayer(Layer):
    """h = norm(x): x + mixer(h) + memory(h), then a feed-forward. Each mixer's scales multiply its input and output."""

    name = "falcon-h1"
    by_part = True  # masks and caches come by the names of the parts, "mixer" and "memory"
    memory: Spec
    mixer_scales: tuple[float, ...] = (1.0, 1.0)
    memory_scales: tuple[float, ...] = (1.0, 1.0)


def falcon_h1(config):
    """LLaMA with two mixers a layer and a number before each matrix (Falcon-LLM Team, 2025)."""
    recipe = zoo_llama.llama(config.with_defaults(rms_norm_eps=1e-5, num_key_value_heads=8))
    base, one = recipe.layers[0], lambda key: config.number(key, 1.0)
    layer = ParallelLayer(
        mixer=base.mixer.change(scale=base.mixer.head_dim**-0.5 * one("key_multiplier")),
        mixer_scales=(one("attention_in_multiplier"), one("attention_out_multiplier")),
        mixer_norm=base.mixer_norm,
        memory=state_space(config, base.feedforward.activation, base.mixer_norm.eps),
        memory_scales=(one("ssm_in_multiplier"), one("ssm_out_multiplier")),
        feedforward=ScaledMLP(
            hidden=base.feedforward.hidden,
            activation=base.feedforward.activation,
            bias=base.feedforward.bias,
            scales=numbers(config, "mlp_multipliers", 2),
        ),
        feedforward_norm=base.feedforward_norm,
    )
    config.refuse("mamba_use_mlp", False)
    config.ignore("num_logits_to_keep", "mlp_expansion_factor")  # they change no logit
    return recipe.change(
        embedding=dict(scale=one("embedding_multiplier")),
        layers=repeat(layer, len(recipe.layers)),
        head=dict(scale=one("lm_head_multiplier")),
    )


def state_space(config, activation, eps):
    """The mixer beside attention, whose norm is optional."""
    zoo_mamba2.refuse_step_limits(config)
    wide = config.count("mamba_expand", 2) * config.count("hidden_size")
    inner = config.count("mamba_d_ssm", wide if config.is_null("mamba_d_ssm") else 1024)
    heads = config.count("mamba_n_heads", 128)
    head_dim = inner // heads
    if config.get("mamba_d_head", "auto") not in ("auto", head_dim) or heads * head_dim != inner:
        raise config.error("mamba_n_heads", f"times mamba_d_head must be the width, {inner}")
    return ScaledStateSpace(
        heads=heads,
        head_dim=head_dim,
        state=config.count("mamba_d_state", 256),
        groups=config.count("mamba_n_groups", 1),
        kernel=config.count("mamba_d_conv", 4),
        chunk=config.count("mamba_chunk_size", 256),
        activation=activation,
        bias=config.flag("mamba_proj_bias", False),
        output_bias=config.flag("projectors_bias", False),
        kernel_bias=config.flag("mamba_conv_bias", True),
        eps=eps if config.flag("mamba_rms_norm", False) else None,
        norm_first=config.flag("mamba_norm_before_gate", True),
        scales=numbers(config, "ssm_multipliers", 5),
    )


def numbers(config, key, count):
    """The `count` numbers of a key; ones when it is absent."""
    found = config.get(key, [1.0] * count)
    if not isinstance(found, list) or len(found) != count:
        raise config.error(key, f"must be {count} numbers")
    return tuple(found)


WEIGHTS = (
    *zoo_mamba2.mixer_weights("model.layers.{i}.mamba.", "layers.{i}.memory."),
    Rename("model.layers.{i}.pre_ff_layernorm.*", "layers.{i}.feedforward_norm.*"),
    Rename("model.layers.{i}.feed_forward.{part}_proj.*", "layers.{i}.feedforward.{part}.*"),
    Rename("model.final_layernorm.*", "norm.*"),
    *zoo_llama.WEIGHTS,
)
TINY = dict(vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4)
TINY |= dict(num_key_value_heads=2, mamba_d_ssm=32, mamba_n_heads=4, mamba_d_state=6, mamba_n_groups=2)
TINY |= dict(mamba_chunk_size=8, key_multiplier=0.4, ssm_multipliers=[0.4, 0.3, 0.5, 0.6, 0.7])


@hookimpl
def zoo_blocks():
    """The layer, and its two parts that are scaled."""
    yield Block(ParallelLayer, "zoo_falcon_h1.block:ParallelLayer", "two mixers side by side")
    yield Block(ScaledStateSpace, "zoo_falcon_h1.block:ScaledStateSpace", "Mamba-2's mixer, scaled")
    yield Block(ScaledMLP, "zoo_falcon_h1.block:ScaledMLP", "a gated feed-forward, scaled")


@hookimpl
def zoo_drawings():
    """The layer's block diagram."""
    yield Drawing(ParallelLayer, "zoo_falcon_h1.drawing:parallel_layer")


@hookimpl
def zoo_architectures():
    """Falcon-H1."""
    yield Architecture(
        name="falcon-h1",
        base="llama",
        summary="attention and a state space in every layer, side by side",
        model_types=("falcon_h1",),
        recipe=falcon_h1,
        weights=WEIGHTS,
        presets=(Preset("tiny", "for tests", config=TINY),),
        references=("Falcon-LLM Team, 2025, arXiv:2507.22448",),
        published="2025-07",
        api=1,
    )
